package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxFile is the size of the largest policy file, in bytes.
const MaxFile = 8 << 20

// MaxPatterns is how many paths the rules of a file may name, braces expanded.
const MaxPatterns = 200_000

// APIVersion is the version of the language.
const APIVersion = "dunnage.io/v1"

// ParseFile reads the policies of one file: documents of kind Policy, or
// Bomfather's `policies:` form, whose policy is named by the file. Nothing is
// accepted that is not understood; every error and warning has its place. With
// an error among the diagnostics no policy is returned.
func ParseFile(name string, data []byte) ([]*Policy, Diagnostics) {
	p := &parser{file: name}
	var out []*Policy
	tests := false
	p.documents(data, func(n *yaml.Node) {
		if isTest(n) {
			tests = true
		} else if pol := p.document(n); pol != nil {
			out = append(out, pol)
		}
	})
	if len(out) == 0 && len(p.diags) == 0 && !tests {
		p.diags = append(p.diags, Diagnostic{Pos: Position{name, 1, 1}, Message: "the file has no policy",
			Hint: "start it with `apiVersion: " + APIVersion + "` and `kind: Policy`"})
	}
	if p.diags.Err() != nil {
		return nil, p.diags
	}
	return out, p.diags
}

// documents calls f for each document of a file that is not empty.
func (p *parser) documents(data []byte, f func(*yaml.Node)) {
	if len(data) > MaxFile {
		p.diags = append(p.diags, Diagnostic{Pos: Position{p.file, 1, 1}, Message: fmt.Sprintf("the file has %d bytes", len(data)),
			Hint: fmt.Sprintf("split it: at most %d are read", MaxFile)})
		return
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			p.syntax(err)
			return
		}
		if len(doc.Content) == 1 && doc.Content[0].Tag != "!!null" {
			f(doc.Content[0])
		}
	}
}

type parser struct {
	file         string
	diags        Diagnostics
	patternCount int // braces expanded
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

func (p *parser) syntax(err error) {
	pos, text := Position{p.file, 1, 1}, err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			pos.Line = n
		}
		text = m[2]
	}
	p.diags = append(p.diags, Diagnostic{Pos: pos, Message: "not YAML: " + text, Hint: "look at the indentation and the quotes there"})
}

func (p *parser) at(n *yaml.Node) Position { return Position{p.file, n.Line, n.Column} }

func (p *parser) fail(n *yaml.Node, hint, format string, args ...any) {
	p.diags = append(p.diags, Diagnostic{Pos: p.at(n), Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (p *parser) warn(pos Position, hint, format string, args ...any) {
	p.diags = append(p.diags, Diagnostic{Warning: true, Pos: pos, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// fields walks a mapping: each known key once, no other, no alias or merge.
func (p *parser) fields(n *yaml.Node, what string, known []string, f func(key string, value *yaml.Node)) bool {
	if n.Kind != yaml.MappingNode {
		p.fail(n, "write `key: value` lines", "%s is %s, not a mapping", what, kindOf(n))
		return false
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if line, dup := seen[key.Value]; dup {
			p.fail(key, "keep one of them", "key %q is given twice: first in line %d", key.Value, line)
			continue
		}
		seen[key.Value] = key.Line
		found := false
		for _, k := range known {
			found = found || k == key.Value
		}
		if !found {
			hint := "known keys of " + what + ": " + choices(known)
			if k := near(key.Value, known); k != "" {
				hint = "did you mean `" + k + "`?"
			}
			p.fail(key, hint, "unknown key %q in %s", key.Value, what)
			continue
		}
		if value.Kind == yaml.AliasNode {
			p.fail(value, "write the value out", "aliases are not read")
			continue
		}
		f(key.Value, value)
	}
	return true
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping"
	case yaml.AliasNode:
		return "an alias"
	}
	if n.Tag == "!!null" {
		return "empty"
	}
	return fmt.Sprintf("the value %q", n.Value)
}

// text reads a string.
func (p *parser) text(n *yaml.Node, what string) string {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		p.fail(n, "write a string, in quotes if need be", "%s is %s, not a string", what, kindOf(n))
		return ""
	}
	return n.Value
}

// word reads one of a few words and returns its index, or -1.
func (p *parser) word(n *yaml.Node, what string, words ...string) int {
	for i, w := range words {
		if n.Kind == yaml.ScalarNode && n.Value == w {
			return i
		}
	}
	hint := "write " + choices(words)
	if w := near(n.Value, words); n.Kind == yaml.ScalarNode && w != "" {
		hint = "did you mean `" + w + "`?"
	}
	p.fail(n, hint, "%s is %s", what, kindOf(n))
	return -1
}

// truth reads a boolean.
func (p *parser) truth(n *yaml.Node, what string) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		p.fail(n, "write true or false", "%s is %s, not true or false", what, kindOf(n))
		return false
	}
	return n.Value == "true" || n.Value == "True" || n.Value == "TRUE"
}

// items calls f for each item of a list.
func (p *parser) items(n *yaml.Node, what string, f func(*yaml.Node)) bool {
	if n.Kind != yaml.SequenceNode {
		p.fail(n, "write a list: [a, b] or lines that start with `- `", "%s is %s, not a list", what, kindOf(n))
		return false
	}
	for _, item := range n.Content {
		if item.Kind == yaml.AliasNode {
			p.fail(item, "write the value out", "aliases are not read")
			continue
		}
		f(item)
	}
	return true
}

func (p *parser) document(n *yaml.Node) *Policy {
	if n.Kind == yaml.MappingNode {
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k := n.Content[i].Value; k == "policies" || k == "attributes" || k == "shutdown_config" {
				return p.bomfather(n, strings.TrimSuffix(filepath.Base(p.file), filepath.Ext(p.file)))
			}
		}
	}
	return p.native(n)
}

// namePattern is what a policy may be called: it goes into annotations, lists
// and file names.
var namePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$`)

// ValidName reports whether a policy may have this name.
func ValidName(name string) bool { return namePattern.MatchString(name) }

package policy

import (
	"go.yaml.in/yaml/v3"
)

// native reads a document of kind Policy.
func (p *parser) native(n *yaml.Node) *Policy {
	pol := &Policy{Pos: p.at(n)}
	before := len(p.diags)
	var spec, metadata, version, kind *yaml.Node
	ok := p.fields(n, "the document", []string{"apiVersion", "kind", "metadata", "spec"}, func(key string, v *yaml.Node) {
		switch key {
		case "apiVersion":
			version = v
			p.word(v, "apiVersion", APIVersion)
		case "kind":
			kind = v
			p.word(v, "kind", "Policy")
		case "metadata":
			metadata = v
			p.metadata(v, pol)
		case "spec":
			spec = v
			p.spec(v, pol)
		}
	})
	for _, need := range []struct {
		node *yaml.Node
		key  string
	}{{version, "apiVersion: " + APIVersion}, {kind, "kind: Policy"}, {metadata, "metadata: {name: …}"}, {spec, "spec"}} {
		if ok && need.node == nil {
			p.fail(n, "add `"+need.key+"`", "the document lacks `%s`", need.key)
		}
	}
	if Diagnostics(p.diags[before:]).Err() != nil {
		return nil
	}
	return pol
}

func (p *parser) metadata(n *yaml.Node, pol *Policy) {
	p.fields(n, "metadata", []string{"name", "description"}, func(key string, v *yaml.Node) {
		text := p.text(v, key)
		if key == "name" {
			if pol.Name = text; !ValidName(text) {
				p.fail(v, "use up to 128 of a-z 0-9 . _ -, first and last a letter or digit", "the policy's name is %q", text)
			}
		}
	})
	if pol.Name == "" {
		p.fail(n, "add `name: …`", "metadata lacks a name")
	}
}

func (p *parser) spec(n *yaml.Node, pol *Policy) {
	known := []string{"mode", "default", "rules", "mounts", "memfdExec", "include"}
	defaulted := false
	p.fields(n, "spec", known, func(key string, v *yaml.Node) {
		switch key {
		case "mode":
			pol.Audit = p.word(v, "mode", "enforce", "audit") == 1
		case "default":
			defaulted = true
			p.defaults(v, pol)
		case "rules":
			p.items(v, "rules", func(item *yaml.Node) { p.rule(item, pol) })
		case "mounts":
			pol.Mounts = p.word(v, "mounts", "deny", "allow") == 1
		case "memfdExec":
			pol.MemfdExec = p.word(v, "memfdExec", "deny", "allow") == 1
		case "include":
			p.items(v, "include", func(item *yaml.Node) {
				name := p.text(item, "an included policy")
				pol.Include = append(pol.Include, Include{name, p.at(item)})
			})
		}
	})
	if !defaulted {
		p.fail(n, "add `default: deny` (only what rules allow) or `default: allow` (all but what rules deny)", "spec lacks a default")
	}
	if len(pol.Rules) > MaxRules {
		p.fail(n, "split the policy", "%d rules: at most %d are possible", len(pol.Rules), MaxRules)
	}
}

var effectWords = []string{"allow", "deny", "only"}

func (p *parser) defaults(n *yaml.Node, pol *Policy) {
	if n.Kind == yaml.ScalarNode {
		allow := p.word(n, "default", "deny", "allow") == 1
		for k := range pol.Default {
			pol.Default[k] = allow
		}
		return
	}
	var given AccessSet
	p.fields(n, "default", accessWords, func(key string, v *yaml.Node) {
		set := accessOf[key]
		if set&given != 0 {
			p.fail(v, "name each kind once", "default %q overlaps another one", key)
		}
		given |= set
		allow := p.word(v, "default of "+key, "deny", "allow") == 1
		for k := range Kind(NumKinds) {
			if set.Has(k) {
				pol.Default[k] = allow
			}
		}
	})
	if missing := AllAccess &^ given; missing != 0 && n.Kind == yaml.MappingNode {
		p.fail(n, "give them too, or one word for all", "default says nothing of %s", missing)
	}
}

func (p *parser) rule(n *yaml.Node, pol *Policy) {
	r := Rule{Pos: p.at(n)}
	var effect, paths, access *yaml.Node
	known := []string{"effect", "paths", "access", "executables", "exact", "inherit"}
	before := len(p.diags)
	ok := p.fields(n, "the rule", known, func(key string, v *yaml.Node) {
		switch key {
		case "effect":
			effect = v
			r.Effect = Effect(max(0, p.word(v, "effect", effectWords...)))
		case "paths":
			paths = v
			r.Paths = p.patterns(v, "paths")
			if v.Kind == yaml.SequenceNode && len(v.Content) == 0 {
				p.fail(v, "name at least one path", "the rule's list of paths is empty")
			}
		case "access":
			access = v
			r.Access = p.access(v)
		case "executables":
			r.Listed = true
			r.Executables = p.patterns(v, "executables")
		case "exact":
			r.Exact = p.truth(v, "exact")
		case "inherit":
			r.Inherit = p.truth(v, "inherit")
		}
	})
	if !ok {
		return
	}
	switch {
	case effect == nil:
		p.fail(n, "add `effect: allow`, `deny` or `only`", "the rule lacks an effect")
	case paths == nil:
		p.fail(n, "add `paths: [/…]`", "the rule lacks paths")
	case access == nil:
		p.fail(n, "add `access: [read]` or other kinds", "the rule lacks access")
	case r.Effect == Only && !r.Listed:
		p.fail(n, "add `executables: […]`; an empty list means nobody", "the rule says `only` but not who")
	case r.Inherit && !r.Listed:
		p.fail(n, "remove `inherit`, or add `executables`", "the rule says `inherit` but names no executables")
	}
	if Diagnostics(p.diags[before:]).Err() == nil {
		pol.Rules = append(pol.Rules, r)
	}
}

func (p *parser) patterns(n *yaml.Node, what string) []Pattern {
	var out []Pattern
	p.items(n, what, func(item *yaml.Node) {
		text := p.text(item, "a path")
		if text == "" && item.Tag != "!!str" {
			return
		}
		if p.patternCount > MaxPatterns {
			return // reported
		}
		ps, err := ParsePattern(text, p.at(item))
		if err != nil {
			p.fail(item, "", "%v", err)
			return
		}
		if p.patternCount += len(ps); p.patternCount > MaxPatterns {
			if p.patternCount-len(ps) <= MaxPatterns {
				p.fail(item, "write fewer braces, or split the file", "the file has more than %d paths, braces expanded", MaxPatterns)
			}
			return
		}
		out = append(out, ps...)
	})
	return out
}

var accessOf = map[string]AccessSet{
	"read": 1 << Read, "write": Write, "modify": 1 << Modify, "append": 1 << Modify, "create": 1 << Create,
	"delete": 1 << Delete, "attr": 1 << Attr, "exec": 1 << Exec, "all": AllAccess,
}

var accessWords = []string{"read", "write", "modify", "append", "create", "delete", "attr", "exec", "all"}

func (p *parser) access(n *yaml.Node) AccessSet {
	var set AccessSet
	p.items(n, "access", func(item *yaml.Node) {
		if i := p.word(item, "access", accessWords...); i >= 0 {
			set |= accessOf[accessWords[i]]
		}
	})
	if set == 0 && n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
		p.fail(n, "name at least one kind: "+choices(accessWords), "the rule's list of access is empty")
	}
	return set
}

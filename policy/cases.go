package policy

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Test is one document of kind PolicyTest: questions about policies and the
// answers that their author wants.
type Test struct {
	Layers    []Include // the policies asked, intersected, by name
	Container Container // whose variants are asked
	Cases     []Case
	Pos       Position
}

// Case is one question. Path and Subject are names, not patterns.
type Case struct {
	Subject Subject
	Path    string
	Access  AccessSet // each kind must give the answer
	Want    string    // allow, deny or audit
	Pos     Position
}

// Result is the answer to one case. Err is nil if the case passed; otherwise it
// says which kind of access had which verdict, by which rule.
type Result struct {
	Case Case
	Err  error
}

// ParseTests reads the documents of kind PolicyTest of a file and passes over
// the policies beside them.
func ParseTests(name string, data []byte) ([]*Test, Diagnostics) {
	p := &parser{file: name}
	var out []*Test
	p.documents(data, func(n *yaml.Node) {
		if isTest(n) {
			out = append(out, p.test(n))
		}
	})
	if p.diags.Err() != nil {
		return nil, p.diags
	}
	return out, p.diags
}

// Run asks every case of the test. Error: a policy can't be looked up.
func (t *Test) Run(s *Set) ([]Result, error) {
	var layers []*Policy
	for _, in := range t.Layers {
		p, err := s.Lookup(in.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", in.Pos, err)
		}
		layers = append(layers, p.For(t.Container)...)
	}
	var out []Result
	for _, c := range t.Cases {
		out = append(out, Result{c, c.run(layers)})
	}
	return out, nil
}

func (c Case) run(layers []*Policy) error {
	for k := range Kind(NumKinds) {
		if !c.Access.Has(k) {
			continue
		}
		v := Decide(layers, c.Subject, c.Path, k)
		got := allowWord(v.Allowed)
		if v.Audited {
			got = "audit"
		}
		if got != c.Want {
			by := "the default"
			if v.Rule != nil {
				by = "the rule at " + v.Rule.Pos.String()
			}
			return fmt.Errorf("%s: %s of %q: want %s, have %s, by %s of policy %q", c.Pos, k, c.Path, c.Want, got, by, layers[v.Layer].Name)
		}
	}
	return nil
}

// isTest reports whether a document is of kind PolicyTest.
func isTest(n *yaml.Node) bool {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "kind" {
			return n.Content[i+1].Value == "PolicyTest"
		}
	}
	return false
}

func (p *parser) test(n *yaml.Node) *Test {
	t := &Test{Pos: p.at(n)}
	versioned, specified := false, false
	p.fields(n, "the document", []string{"apiVersion", "kind", "metadata", "spec"}, func(key string, v *yaml.Node) {
		switch key {
		case "apiVersion":
			versioned = true
			p.word(v, key, APIVersion)
		case "metadata":
			p.metadata(v, &Policy{})
		case "spec":
			specified = true
			p.fields(v, "spec", []string{"policy", "layers", "container", "cases"}, func(key string, v *yaml.Node) {
				layer := func(item *yaml.Node) {
					t.Layers = append(t.Layers, Include{p.text(item, "a policy's name"), p.at(item)})
				}
				switch key {
				case "policy":
					layer(v)
				case "layers":
					p.items(v, key, layer)
				case "container":
					var err error
					if t.Container, err = ParseContainer(p.text(v, key)); err != nil {
						p.fail(v, "write it as the orchestrator calls it: shop:web-7d4b:nginx", "%v", err)
					}
				case "cases":
					p.items(v, key, func(item *yaml.Node) { p.testCase(item, t) })
				}
			})
		}
	})
	switch {
	case !versioned:
		p.fail(n, "add `apiVersion: "+APIVersion+"`", "the document lacks `apiVersion`")
	case !specified || len(t.Layers) == 0:
		p.fail(n, "add `policy: NAME` to spec", "the test names no policy")
	case len(t.Cases) == 0:
		p.fail(n, "add `cases:` to spec", "the test has no cases")
	}
	return t
}

func (p *parser) testCase(n *yaml.Node, t *Test) {
	c := Case{Pos: p.at(n)}
	programs := func(v *yaml.Node) (out []string) {
		one := func(item *yaml.Node) { out = append(out, p.plainPath(item)) }
		if v.Kind == yaml.ScalarNode {
			one(v)
		} else {
			p.items(v, "exe", one)
		}
		return out
	}
	words := []string{"allow", "deny", "audit"}
	ok := p.fields(n, "the case", []string{"exe", "inherited", "path", "access", "want"}, func(key string, v *yaml.Node) {
		switch key {
		case "exe":
			c.Subject.Programs = programs(v)
		case "inherited":
			c.Subject.Inherited = programs(v)
		case "path":
			c.Path = p.plainPath(v)
		case "access":
			if v.Kind == yaml.ScalarNode {
				v = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{v}, Line: v.Line, Column: v.Column}
			}
			c.Access = p.access(v)
		case "want":
			if i := p.word(v, key, words...); i >= 0 {
				c.Want = words[i]
			}
		}
	})
	if ok && (c.Path == "" || c.Access == 0 || c.Want == "") {
		p.fail(n, "write {exe: /bin/cat, path: /etc/shadow, access: read, want: deny}", "the case needs path, access and want")
	}
	t.Cases = append(t.Cases, c)
}

// plainPath reads a path that is a name: globs in it are ordinary bytes.
func (p *parser) plainPath(n *yaml.Node) string {
	text := p.text(n, "a path")
	if _, err := parsePath(escapeGlobs(text)); err != nil {
		p.fail(n, "", "%v", err)
	}
	return text
}

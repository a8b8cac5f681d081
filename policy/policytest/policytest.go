// Package policytest makes random policies and questions about them, with a
// seed, for the tests that compare Decide, the automaton and the kernel. It
// imports only package policy; only tests import it.
package policytest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/dunnage-project/dunnage/policy"
)

// Gen is a source of policies and questions. Equal seeds give equal ones.
type Gen struct {
	MaxLayers, MaxRules int // what Layers gives at most, at least 1 each

	r *rand.Rand
}

// New returns a generator of up to 3 layers of up to 8 rules.
func New(seed uint64) *Gen {
	return &Gen{MaxLayers: 3, MaxRules: 8, r: rand.New(rand.NewPCG(seed, 0))}
}

// names are few, so that paths meet rules; some are awkward.
var names = []string{"a", "b", "ab", "abc", "usr", "lib.so", "lib.so.1", "data", "*", "[x]", "\n", "\xff\xfe",
	"0123456", "01234567", "012345678", "0123456789abcdef0123456789abcdef0123456789abcdefX", "long" + strings.Repeat("x", 251)}

var components = []string{"a", "b", "ab", "abc", "usr", "data", "*", "**", "a*", "*b", "lib.so*", "?", "[ab]", "[!a]*",
	"*a*", "l*.1", "ab[cd]", "?*", "{abc,abd}", "\\*", "01234567", "0123456?", "0123456789abcdef0123456789abcdef0123456789abcdefX", "long*", "{a,b}*", "\n"}

var programs = []string{"/a", "/bin/a", "/bin/b", "/usr/lib/x/bin/postgres", "/usr/bin/python3", "/b", "/bin/ab"}

var executables = []string{"/a", "/bin/a", "/bin/*", "/usr/lib/*/bin/postgres", "/usr/**", "/usr/bin/python3*", "/**", "/b"}

// Layers is one to MaxLayers policies.
func (g *Gen) Layers() []*policy.Policy {
	out := make([]*policy.Policy, 1+g.r.IntN(g.MaxLayers))
	for i := range out {
		out[i] = g.Policy(1 + g.r.IntN(g.MaxRules))
		out[i].Name = fmt.Sprintf("p%d", i)
	}
	return out
}

// Policy is one policy of n rules.
func (g *Gen) Policy(n int) *policy.Policy {
	p := &policy.Policy{Audit: g.r.IntN(5) == 0, Mounts: g.r.IntN(2) == 0, MemfdExec: g.r.IntN(2) == 0}
	for k := range p.Default {
		p.Default[k] = g.r.IntN(2) == 0
	}
	for i := range n {
		r := policy.Rule{
			Effect: policy.Effect(g.r.IntN(3)),
			Access: policy.AccessSet(1 + g.r.IntN(int(policy.AllAccess))),
			Exact:  g.r.IntN(4) == 0,
			Pos:    policy.Position{File: "random", Line: i + 1, Column: 1},
		}
		for range 1 + g.r.IntN(3) {
			r.Paths = append(r.Paths, g.pattern()...)
		}
		if r.Effect == policy.Only || g.r.IntN(2) == 0 {
			r.Listed = true
			r.Inherit = g.r.IntN(3) == 0
			for range g.r.IntN(3) {
				ps, err := policy.ParsePattern(executables[g.r.IntN(len(executables))], r.Pos)
				if err != nil {
					panic(err)
				}
				r.Executables = append(r.Executables, ps...)
			}
		}
		p.Rules = append(p.Rules, r)
	}
	return p
}

func (g *Gen) pattern() []policy.Pattern {
	var b strings.Builder
	for range g.r.IntN(4) {
		b.WriteByte('/')
		b.WriteString(components[g.r.IntN(len(components))])
	}
	text := b.String()
	if text == "" {
		text = "/"
	}
	ps, err := policy.ParsePattern(text, policy.Position{})
	if err != nil {
		panic(err)
	}
	return ps
}

// anyName is up to 255 of any bytes that a name can have, most of the time few.
func (g *Gen) anyName() string {
	n := 1 + g.r.IntN(4)
	if g.r.IntN(8) == 0 {
		n = 1 + g.r.IntN(policy.MaxName)
	}
	name := make([]byte, n)
	for i := range name {
		for name[i] == 0 || name[i] == '/' {
			name[i] = byte(g.r.IntN(256))
		}
	}
	return string(name)
}

// Question is what Decide is asked.
type Question struct {
	Subject policy.Subject
	Path    string
	Kind    policy.Kind
}

// Question is a random question, most of the time near some rule.
func (g *Gen) Question() Question {
	q := Question{Kind: policy.Kind(g.r.IntN(policy.NumKinds))}
	depth := g.r.IntN(6)
	if g.r.IntN(500) == 0 {
		depth = 300
	}
	var b strings.Builder
	for range depth {
		b.WriteByte('/')
		if g.r.IntN(20) == 0 {
			b.WriteString(g.anyName())
		} else {
			b.WriteString(names[g.r.IntN(len(names)-g.r.IntN(2)*8)])
		}
		if b.Len() > 3800 {
			break
		}
	}
	if q.Path = b.String(); q.Path == "" {
		q.Path = "/"
	}
	for range g.r.IntN(3) {
		q.Subject.Programs = append(q.Subject.Programs, programs[g.r.IntN(len(programs))])
	}
	for range g.r.IntN(2) {
		q.Subject.Inherited = append(q.Subject.Inherited, programs[g.r.IntN(len(programs))])
	}
	return q
}

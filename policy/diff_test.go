package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
	"github.com/dunnage-project/dunnage/policy/policytest"
)

func compile(t testing.TB, layers ...*policy.Policy) *policy.Automaton {
	t.Helper()
	a, err := policy.Compile(layers)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func pattern(t testing.TB, text string) []policy.Pattern {
	t.Helper()
	ps, err := policy.ParsePattern(text, policy.Position{})
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

func TestDiffNamesSubjectAndPath(t *testing.T) {
	read := policy.AccessSet(1 << policy.Read)
	only := policy.Rule{Effect: policy.Only, Paths: pattern(t, "/data"), Access: read, Listed: true, Executables: pattern(t, "/bin/pg")}
	base := &policy.Policy{Rules: []policy.Rule{{Paths: pattern(t, "/"), Access: read}, only}}
	wider := *base
	wider.Rules = append(wider.Rules[:2:2], policy.Rule{Effect: policy.Deny, Paths: pattern(t, "/etc/*.key"), Access: read},
		policy.Rule{Effect: policy.Only, Paths: pattern(t, "/data"), Access: read, Listed: true, Executables: pattern(t, "/bin/dump")})
	d, err := policy.Diff(compile(t, base), compile(t, &wider))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range d.Changes {
		got = append(got, fmt.Sprintf("%v %v %s %s->%s %q", c.Anybody, c.Subject.Programs, c.Kind, c.Old, c.New, c.Paths))
	}
	// The shortest name of *.key is ".key" itself.
	want := `false [/bin/dump] read deny->allow ["/data"]` + "\n" + `true [] read allow->deny ["/etc/.key"]`
	if strings.Join(got, "\n") != want {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
	}
}

// Each example of a Diff is true by Decide, and what Decide answers differently
// for one program or for several is never missing from it.
func TestDiffAgreesWithDecide(t *testing.T) {
	g := policytest.New(7)
	examples, differing, several := 0, 0, 0
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	for range rounds {
		old := g.Layers()
		new := append(old[:len(old):len(old)], g.Policy(2))
		if g.Policy(1).Audit {
			new = g.Layers()
		}
		d, err := policy.Diff(compile(t, old...), compile(t, new...))
		if err != nil {
			t.Fatal(err)
		}
		type change struct {
			kind     policy.Kind
			old, new policy.Answer
		}
		told := map[change]bool{}
		for _, c := range d.Changes {
			told[change{c.Kind, c.Old, c.New}] = true
			for _, path := range c.Paths {
				examples++
				if o, n := decided(old, c.Subject, path, c.Kind), decided(new, c.Subject, path, c.Kind); o != c.Old || n != c.New {
					t.Fatalf("%+v on %q: Decide says %s->%s", c, path, o, n)
				}
			}
		}
		for range 200 {
			q := g.Question()
			if len(q.Subject.Programs)+len(q.Subject.Inherited) > 1 {
				several++
			}
			o, n := decided(old, q.Subject, q.Path, q.Kind), decided(new, q.Subject, q.Path, q.Kind)
			if o != n {
				differing++
				if !told[change{q.Kind, o, n}] {
					t.Fatalf("%+v goes from %s to %s: not in the difference", q, o, n)
				}
			}
		}
	}
	if examples < 100 || differing < 100 || several < 100 {
		t.Fatalf("only %d examples, %d differing questions and %d of several programs", examples, differing, several)
	}
}

// What only a script and its interpreter together may do is found, and nothing
// else is said of them.
func TestDiffOfSeveralPrograms(t *testing.T) {
	read := policy.AccessSet(1 << policy.Read)
	only := func(exe string) *policy.Policy {
		return &policy.Policy{Rules: []policy.Rule{{Effect: policy.Only, Paths: pattern(t, "/data"), Access: read, Listed: true, Executables: pattern(t, exe)}}}
	}
	closed := only("/bin/none")
	closed.Rules[0].Executables = nil
	d, err := policy.Diff(compile(t, closed), compile(t, only("/bin/sh"), only("/opt/run.sh")))
	if err != nil || len(d.Changes) != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	c := d.Changes[0]
	if c.Anybody || strings.Join(c.Subject.Programs, " ") != "/bin/sh /opt/run.sh" || c.Old != policy.Denied || c.New != policy.Allowed {
		t.Errorf("%+v", c)
	}
}

func decided(layers []*policy.Policy, s policy.Subject, path string, k policy.Kind) policy.Answer {
	switch v := policy.Decide(layers, s, path, k); {
	case !v.Allowed:
		return policy.Denied
	case v.Audited:
		return policy.Audited
	}
	return policy.Allowed
}

func TestDiffOfEqualsIsEmpty(t *testing.T) {
	g := policytest.New(8)
	for range 50 {
		layers := g.Layers()
		d, err := policy.Diff(compile(t, layers...), compile(t, layers...))
		if err != nil || len(d.Changes) > 0 {
			t.Fatalf("%v, %v", d, err)
		}
	}
}

func TestDot(t *testing.T) {
	var b strings.Builder
	p := &policy.Policy{Rules: []policy.Rule{{Paths: pattern(t, `/a"b\\c/*.so`), Access: policy.AllAccess}}}
	if err := compile(t, p).Dot(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"digraph paths {", `label="a\"b\\\\c"`, `"such as .so", style=dashed`, "doublecircle"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in:\n%s", want, b.String())
		}
	}
}

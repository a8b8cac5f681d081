package policy_test

import (
	"testing"

	"github.com/dunnage-project/dunnage/policy"
)

// FuzzCompile asks Decide and the automaton about a policy of two fuzzed rules,
// the second in a layer of its own if `layers`, for a fuzzed path and program.
func FuzzCompile(f *testing.F) {
	f.Add("/a/*b", "/**/b", "/bin/*", "/a/ab/c", "/bin/x", uint8(0), uint8(1), false)
	f.Add("/{a,b}/[!a]*?", "/", "/**", "/b/\xff\n", "/x", uint8(2), uint8(5), true)
	f.Add("/**/a*b*c", "/**/*a/b", "/usr/**/x", "/a/abc/b", "/usr/x", uint8(7), uint8(8), true)
	f.Fuzz(func(t *testing.T, first, second, executable, path, program string, one, two uint8, layers bool) {
		programs, err := policy.ParsePattern(executable, policy.Position{})
		if err != nil {
			return
		}
		rule := func(text string, bits uint8) (policy.Rule, bool) {
			ps, err := policy.ParsePattern(text, policy.Position{})
			r := policy.Rule{Effect: policy.Effect(bits % 3), Paths: ps, Access: policy.AllAccess, Exact: bits&4 != 0}
			if r.Effect == policy.Only || bits&8 != 0 {
				r.Listed, r.Executables, r.Inherit = true, programs, bits&16 != 0
			}
			return r, err == nil
		}
		r, ok1 := rule(first, one)
		q, ok2 := rule(second, two)
		if !ok1 || !ok2 || len(r.Paths)+len(q.Paths)+len(programs) > 64 {
			return
		}
		p := &policy.Policy{Rules: []policy.Rule{r, q}}
		set := []*policy.Policy{p}
		if layers {
			p.Rules = p.Rules[:1]
			set = append(set, &policy.Policy{Rules: []policy.Rule{q}, Audit: two&32 != 0})
		}
		a, err := policy.Compile(set)
		if err != nil {
			return // refused: nothing to compare
		}
		if _, ok := a.Paths.Run(path); !ok {
			return
		}
		if _, ok := a.Programs.Run(program); !ok {
			return
		}
		for _, s := range []policy.Subject{{}, {Programs: []string{program}}, {Inherited: []string{program}}} {
			want := policy.Decide(set, s, path, policy.Modify)
			if allowed, audited := a.Decide(s, path, policy.Modify); allowed != want.Allowed || audited != want.Audited {
				t.Fatalf("%v %q: Decide says %v/%v, the automaton %v/%v", s, path, want.Allowed, want.Audited, allowed, audited)
			}
		}
	})
}

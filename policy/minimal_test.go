package policy_test

import (
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
	"github.com/dunnage-project/dunnage/policy/policytest"
)

// No two states of an automaton have equal rights for every suffix, and Final
// says exactly that all suffixes have the same.
func TestAutomatonIsMinimal(t *testing.T) {
	g := policytest.New(9)
	checked := 0
	for checked < 150 {
		a := compile(t, g.Layers()...)
		if len(a.Paths.States) > 40 {
			continue
		}
		checked++
		for _, d := range []*policy.DFA{&a.Paths, &a.Programs} {
			if i, j := twins(d); i != j {
				t.Errorf("states %d and %d of %d are equal:\n%+v\n%+v", i, j, len(d.States), d.States[i], d.States[j])
			}
			for i, s := range d.States {
				alone := true
				for _, name := range policy.TellingNames(d, policy.StateID(i), d, policy.StateID(i)) {
					alone = alone && d.Step(policy.StateID(i), name) == policy.StateID(i)
				}
				if alone != s.Final {
					t.Errorf("state %d: Final is %v", i, s.Final)
				}
			}
		}
	}
}

// twins is two different states that no path tells apart, or the same twice.
func twins(d *policy.DFA) (policy.StateID, policy.StateID) {
	n := policy.StateID(len(d.States))
	type pair [2]policy.StateID
	told := map[pair]bool{} // told apart
	steps := map[pair][]pair{}
	for i := range n {
		for j := range i {
			p := pair{i, j}
			told[p] = d.States[i].Out != d.States[j].Out
			if told[p] {
				continue
			}
			for _, name := range policy.TellingNames(d, i, d, j) {
				x, y := d.Step(i, name), d.Step(j, name)
				if x != y {
					steps[p] = append(steps[p], pair{max(x, y), min(x, y)})
				}
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for p, next := range steps {
			for _, q := range next {
				if !told[p] && told[q] {
					told[p], changed = true, true
				}
			}
		}
	}
	for p, apart := range told {
		if !apart {
			return p[0], p[1]
		}
	}
	return 0, 0
}

// The result does not depend on the order of maps.
func TestCompileIsDeterministic(t *testing.T) {
	g := policytest.New(10)
	for range 50 {
		layers := g.Layers()
		if compile(t, layers...).Digest != compile(t, layers...).Digest {
			t.Fatal("two digests of one policy")
		}
	}
}

// Ways to write one meaning give one state, whatever literals, globs and rules it
// is made of.
func TestOneMeaningOneState(t *testing.T) {
	letters := "{" + strings.Join(strings.Split("abcdefghijklmnopqrstuvwxyz", ""), ",") + "}"
	rule := func(effect policy.Effect, text string) policy.Rule {
		return policy.Rule{Effect: effect, Paths: pattern(t, text), Access: policy.AllAccess}
	}
	for _, c := range []struct{ one, other []policy.Rule }{
		{[]policy.Rule{rule(policy.Allow, "/p/a*"), rule(policy.Deny, "/p/{abc,abd}")}, []policy.Rule{rule(policy.Allow, "/q/a*"), rule(policy.Deny, "/q/ab[cd]")}},
		{[]policy.Rule{rule(policy.Allow, "/p/[!a]*")}, []policy.Rule{rule(policy.Allow, "/q/*"), rule(policy.Deny, "/q/a*")}},
		{[]policy.Rule{rule(policy.Allow, "/p/[a-z][a-z]")}, []policy.Rule{rule(policy.Allow, "/q/"+letters+letters)}},
		{[]policy.Rule{rule(policy.Allow, "/p/?*")}, []policy.Rule{rule(policy.Allow, "/q/*")}},
		{[]policy.Rule{rule(policy.Allow, "/p/{a*,b}")}, []policy.Rule{rule(policy.Allow, "/q/{a,b,a?*}")}},
		{[]policy.Rule{rule(policy.Allow, "/p/{a,b}*/**/x"), rule(policy.Deny, "/p/b/**/x")}, []policy.Rule{rule(policy.Allow, "/q/[ab]*/**/x"), rule(policy.Deny, "/q/{b,bb}/**/x"), rule(policy.Deny, "/p/b[b]/**/x")}},
		{[]policy.Rule{rule(policy.Allow, "/p/?*"), rule(policy.Deny, "/p/k")}, []policy.Rule{rule(policy.Allow, "/q/{[!k]*,k?*}")}},
	} {
		p := &policy.Policy{Rules: append(c.one, c.other...)}
		a := compile(t, p)
		one, _ := a.Paths.Run("/p")
		other, _ := a.Paths.Run("/q")
		if one != other {
			t.Errorf("two states for %s and %s", policy.Convert(&policy.Policy{Name: "one", Rules: c.one}), policy.Convert(&policy.Policy{Name: "other", Rules: c.other}))
		}
	}
}

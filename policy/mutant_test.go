package policy_test

import (
	"testing"

	"github.com/dunnage-project/dunnage/policy"
)

// The comparison with Decide finds a compiler that is broken on purpose.
func TestBrokenCompilersAreCaught(t *testing.T) {
	again := func(a *policy.Automaton, layers []*policy.Policy) {
		if b, err := policy.Compile(layers); err == nil {
			*a = *b
		}
	}
	for _, m := range []struct {
		name   string
		break_ func(layers []*policy.Policy, a *policy.Automaton)
	}{
		{"one transition flipped", func(_ []*policy.Policy, a *policy.Automaton) {
			a.Paths.States[len(a.Paths.States)/2].Default = a.Paths.Start
		}},
		{"a layer dropped", func(layers []*policy.Policy, a *policy.Automaton) {
			if len(layers) > 1 {
				again(a, layers[1:])
			}
		}},
		{"exact ignored", func(layers []*policy.Policy, a *policy.Automaton) {
			again(a, eachRule(layers, func(r *policy.Rule) { r.Exact = false }))
		}},
		{"inherit ignored", func(layers []*policy.Policy, a *policy.Automaton) {
			again(a, eachRule(layers, func(r *policy.Rule) { r.Inherit = false }))
		}},
		{"only taken for allow", func(layers []*policy.Policy, a *policy.Automaton) {
			again(a, eachRule(layers, func(r *policy.Rule) {
				if r.Effect == policy.Only {
					r.Effect = policy.Allow
				}
			}))
		}},
		{"audit taken for enforce", func(layers []*policy.Policy, a *policy.Automaton) {
			for i := range layers {
				p := *layers[i]
				p.Audit = false
				layers = append(append([]*policy.Policy(nil), layers[:i]...), append([]*policy.Policy{&p}, layers[i+1:]...)...)
			}
			again(a, layers)
		}},
	} {
		if err := disagree(2, 100_000, m.break_, nil); err == nil {
			t.Errorf("not caught: %s", m.name)
		}
	}
}

func eachRule(layers []*policy.Policy, change func(*policy.Rule)) []*policy.Policy {
	var out []*policy.Policy
	for _, p := range layers {
		q := *p
		q.Rules = append([]policy.Rule(nil), p.Rules...)
		for i := range q.Rules {
			change(&q.Rules[i])
		}
		out = append(out, &q)
	}
	return out
}

// Adding a layer never allows more.
func TestLayersOnlyTighten(t *testing.T) {
	checked := 0
	forEachQuestion(3, 60_000, func(layers []*policy.Policy, s policy.Subject, path string, k policy.Kind) {
		if len(layers) < 2 {
			return
		}
		checked++
		if policy.Decide(layers, s, path, k).Allowed && !policy.Decide(layers[1:], s, path, k).Allowed {
			t.Fatalf("%v %s %s: allowed by the layers, denied by one", s, path, k)
		}
	})
	if checked < 10_000 {
		t.Fatalf("only %d questions had layers", checked)
	}
}

// Gain never misses a gain: whenever it says no, no subject that is allowed at
// the new path was denied at the old one.
func TestGainIsSound(t *testing.T) {
	var last string
	var of *policy.Policy
	var a *policy.Automaton
	refused := 0
	forEachQuestion(4, 8_000, func(layers []*policy.Policy, s policy.Subject, path string, k policy.Kind) {
		from := last
		last = path
		if from == "" || (k != policy.Read && k != policy.Modify && k != policy.Exec) {
			return
		}
		if of != layers[0] {
			of, a = layers[0], compile(t, layers...)
		}
		old, _ := a.Paths.Run(from)
		new, _ := a.Paths.Run(path)
		if !a.MoveFile(old, new) {
			refused++
			return
		}
		if policy.Decide(layers, s, path, k).Allowed && !policy.Decide(layers, s, from, k).Allowed {
			t.Fatalf("%v gains %s by moving %q to %q", s, k, from, path)
		}
	})
	if refused == 0 {
		t.Fatal("no move was ever refused")
	}
}

package policy_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/dunnage-project/dunnage/policy"
	"github.com/dunnage-project/dunnage/policy/policytest"
)

// disagree asks n questions about random layers and returns the first on which
// Decide and the automaton differ. change may break the automaton on purpose.
func disagree(seed uint64, n int, change func([]*policy.Policy, *policy.Automaton), count map[string]int) error {
	g := policytest.New(seed)
	for asked := 0; asked < n; {
		layers := g.Layers()
		a, err := policy.Compile(layers)
		if err != nil {
			return err
		}
		if change != nil {
			change(layers, a)
		}
		for range 200 {
			q := g.Question()
			want := policy.Decide(layers, q.Subject, q.Path, q.Kind)
			allowed, audited := a.Decide(q.Subject, q.Path, q.Kind)
			if allowed != want.Allowed || audited != want.Audited {
				return fmt.Errorf("%+v of %d layers: Decide says %v/%v (rule %v), the automaton %v/%v",
					q, len(layers), want.Allowed, want.Audited, want.Rule, allowed, audited)
			}
			asked++
			if count != nil {
				effect := "default"
				if want.Rule != nil {
					effect = [...]string{"allow", "deny", "only"}[want.Rule.Effect]
				}
				count[fmt.Sprintf("%d layers, %s, %s", len(layers), q.Kind, effect)]++
				if want.Rule != nil {
					count["touched a rule"]++
				}
			}
		}
	}
	return nil
}

func TestAutomatonAgreesWithDecide(t *testing.T) {
	n := 1_000_000
	if more, err := strconv.Atoi(os.Getenv("DUNNAGE_QUESTIONS")); err == nil {
		n = more // `make release`
	}
	if testing.Short() {
		n = 50_000
	}
	start := time.Now()
	count := map[string]int{}
	if err := disagree(1, n, nil, count); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d questions in %v: %v", n, time.Since(start).Round(time.Second), count)
	if !testing.Short() && 2*count["touched a rule"] < n { // a short run can miss the half by a hair
		t.Errorf("only %d of %d questions touched a rule", count["touched a rule"], n)
	}
	for layers := 1; layers <= 3; layers++ {
		for k := range policy.Kind(policy.NumKinds) {
			for _, effect := range []string{"allow", "deny", "only", "default"} {
				if name := fmt.Sprintf("%d layers, %s, %s", layers, k, effect); count[name] == 0 {
					t.Errorf("no question had: %s", name)
				}
			}
		}
	}
}

// forEachQuestion asks n questions, 50 for each random set of layers.
func forEachQuestion(seed uint64, n int, f func([]*policy.Policy, policy.Subject, string, policy.Kind)) {
	g := policytest.New(seed)
	for range n / 50 {
		layers := g.Layers()
		for range 50 {
			q := g.Question()
			f(layers, q.Subject, q.Path, q.Kind)
		}
	}
}

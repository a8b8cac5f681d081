package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunnage-project/dunnage/policy"
	"github.com/dunnage-project/dunnage/policy/policytest"
)

// A rule is reported as unused exactly if the policy without it answers every
// question alike, by the difference of the two automata.
func TestUnusedRulesAreExact(t *testing.T) {
	g := policytest.New(21)
	counts := map[string]int{}
	rounds := 120
	if testing.Short() {
		rounds = 30
	}
	for range rounds {
		p := g.Policy(6)
		p.Name = "random"
		unused, told := policy.Unused(p, false)
		against, toldToo := policy.Unused(p, true)
		if !told || !toldToo || !slices.Equal(unused, against) {
			t.Fatalf("told apart: %v, against the others: %v\n%s", unused, against, policy.Convert(p))
		}
		rest := *p
		gone := make([]bool, len(p.Rules))
		for _, i := range policy.UnusedOrder(p) {
			without := rest
			without.Rules = nil
			for j, r := range p.Rules {
				if j != i && !gone[j] {
					without.Rules = append(without.Rules, r)
				}
			}
			d, err := policy.Diff(compile(t, &rest), compile(t, &without))
			if err != nil {
				t.Fatal(err)
			}
			if same := len(d.Changes) == 0; same != unused[i] {
				t.Fatalf("rule %d: unused %v, but without it: %+v\n%s", i, unused[i], d.Changes, policy.Convert(&rest))
			}
			if unused[i] {
				rest, gone[i] = without, true
			}
			counts[fmt.Sprintf("%s %v", p.Rules[i].Effect, unused[i])]++
		}
	}
	for _, effect := range []string{"allow", "deny", "only"} {
		for _, unused := range []bool{true, false} {
			if what := fmt.Sprintf("%s %v", effect, unused); counts[what] < 5 {
				t.Errorf("%d of %q: %v", counts[what], what, counts)
			}
		}
	}
	t.Log(counts)
}

// Looking for unused rules has a bound, and says so when it is met.
func TestLintTakesItsTime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes five seconds of a processor: part of `make test`")
	}
	for name, p := range map[string]*policy.Policy{
		"10,000 literal paths": rules(t, 10_000, literal),
		"30 patterns":          rules(t, 30, func(i int) string { return fmt.Sprintf("/**/name%d", i) }),
		"1,000 globs":          diverse(t, rules(t, 1000, globbed), 50),
	} {
		start := time.Now()
		diags := policy.Lint(p)
		took := time.Since(start)
		t.Logf("%s: %v, %d findings, such as %v", name, took.Round(time.Millisecond), len(diags), diags[:min(1, len(diags))])
		if took > time.Minute {
			t.Errorf("%s: %v", name, took)
		}
	}
}

// What Lint says of rules that get in each other's way, and what it does not say.
func TestLintContradictions(t *testing.T) {
	for rules, want := range map[string]string{
		"{effect: only, paths: [/k], access: [read], executables: [/bin/p]}\n  - {effect: deny, paths: [/k/x], access: [read], executables: [/bin/*]}": "t.yaml:8:5: nobody may do all of this at /k/x",
		"{effect: deny, paths: [/k], access: [all]}\n  - {effect: only, paths: [/k/x], access: [read], executables: [/bin/p]}":                         "t.yaml:9:5: the rule is never used: where it matches, others decide alike or before it, such as the `deny` rule at t.yaml:8:5 for /k/x",
		"{effect: only, paths: [/k], access: [read], executables: [/bin/p]}\n  - {effect: allow, paths: [/k/*.pem], access: [read]}":                   "t.yaml:9:5: the rule is never used: where it matches, others decide alike or before it, such as the `only` rule at t.yaml:8:5 for /k/.pem",
		"{effect: allow, paths: [/tmp], access: [exec]}": "t.yaml:8:5: the rule is never used: the default allows the same",
		"{effect: only, paths: [/k], access: [read], executables: [\"/opt/*/bin/p\"]}\n  - {effect: deny, paths: [/opt/x], access: [exec]}":                  "",
		"{effect: only, paths: [/k], access: [write], executables: []}":                                                                                      "",
		"{effect: deny, paths: [/k], access: [read], executables: [/bin/p]}\n  - {effect: deny, paths: [/k], access: [read], executables: [/bin/p, /bin/q]}": "t.yaml:8:5: the rule is never used: where it matches, others decide alike or before it, such as the `deny` rule at t.yaml:9:5 for /k",
	} {
		p := one(t, "apiVersion: dunnage.io/v1\nkind: Policy\nmetadata: {name: t}\nspec:\n  default: allow\n  mounts: allow\n  rules:\n  - "+rules+"\n")
		var got []string
		for _, d := range policy.Lint(p) {
			if !strings.Contains(d.Message, "symbolic link") {
				got = append(got, d.Pos.String()+": "+d.Message)
			}
		}
		if want == "" && got != nil || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], want)) {
			t.Errorf("%s\nhave %q\nwant %q", rules, got, want)
		}
	}
	p := one(t, "apiVersion: dunnage.io/v1\nkind: Policy\nmetadata: {name: t}\nspec:\n  default: deny\n  rules:\n"+
		"  - {effect: allow, paths: [/opt/a], access: [exec]}\n  - {effect: only, paths: [/k], access: [read], executables: [\"/opt/*/p\", \"/usr/*/p\"]}\n")
	if got := policy.Lint(p); len(got) != 1 || got[0].Message != "no rule lets /usr/*/p be executed" {
		t.Errorf("programs that can't run: %v", got)
	}
}

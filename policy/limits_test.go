package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dunnage-project/dunnage/policy"
)

// diverse gives every rule an access and one of n executables, so that the
// compiler can't take many rules for one.
func diverse(t testing.TB, p *policy.Policy, n int) *policy.Policy {
	for i := range p.Rules {
		r := &p.Rules[i]
		r.Access = policy.AccessSet(1 + i%int(policy.AllAccess))
		r.Effect = policy.Effect(i % 3)
		r.Listed, r.Executables = true, pattern(t, fmt.Sprintf("/usr/bin/p%d*", i%n))
	}
	return p
}

// What would explode is refused before it takes long, by the name of a rule.
func TestExplosionsAreRefusedSoon(t *testing.T) {
	for name, text := range map[string]func(int) string{
		"deep":       func(i int) string { return fmt.Sprintf("/**/a%d/**/b%d/**/c%d/**/d%d", i, i, i, i) },
		"stars":      func(i int) string { return fmt.Sprintf("/**/*a%d*b%d*c%d*", i, i, i) },
		"both":       func(i int) string { return fmt.Sprintf("/**/*%c*%c*/x%d", 'a'+i%26, 'a'+i/2%26, i) },
		"many names": func(i int) string { return fmt.Sprintf("/**/n%d/**/x", i) },
		"one dir":    func(i int) string { return fmt.Sprintf("/d/*%c%c*%c*", 'a'+i%26, 'a'+i/3%26, 'a'+i/7%26) },
		"far back":   func(i int) string { return "/*a" + strings.Repeat("?", 20+i%20) },
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && (name == "deep" || name == "many names") {
				t.Skip("takes two seconds of a processor: part of `make test`; TestExplosionIsRefused is like it")
			}
			start := time.Now()
			_, err := policy.Compile([]*policy.Policy{diverse(t, rules(t, 200, text), 50)})
			took := time.Since(start)
			t.Logf("%v: %v", took.Round(time.Millisecond), err)
			if err != nil && !strings.HasPrefix(err.Error(), "many.yaml:") {
				t.Errorf("the error names no rule: %v", err)
			}
			if took > 15*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// The bounds of the compiler, at their edges and over them.
func TestCompilerBounds(t *testing.T) {
	deep := func(i int) string { return fmt.Sprintf("/n%d/b/c/d", i) } // three states of its own
	edges := func(m int) *policy.Policy {
		// n² + 3n edges for the patterns, m for the names beside them.
		const n = 1446
		return rules(t, n+m, func(i int) string {
			if i < n {
				return fmt.Sprintf("/**/n%d/x", i)
			}
			return fmt.Sprintf("/m%d", i)
		})
	}
	const fill = policy.MaxEdges - 1446*1446 - 3*1446
	for _, c := range []struct {
		what     string
		at, over *policy.Policy
		slow     bool
	}{
		{"states", rules(t, (policy.MaxStates-3)/3, deep), rules(t, (policy.MaxStates-3)/3, func(i int) string {
			if i == 0 {
				return deep(0) + "/e"
			}
			return deep(i)
		}), true},
		{"edges", edges(fill), edges(fill + 1), true},
		// An automaton for *a and n more bytes must remember the last n+1.
		{"globs", rules(t, 1, func(int) string { return "/*a" + strings.Repeat("?", 11) }),
			rules(t, 2, func(i int) string {
				return [...]string{"/*a" + strings.Repeat("?", 11), "/b"}[i%2] + strings.Repeat("?", i)
			}), false},
	} {
		if c.slow && testing.Short() {
			continue // two seconds each
		}
		if _, err := policy.Compile([]*policy.Policy{c.at}); err != nil {
			t.Errorf("%s at the limit: %v", c.what, err)
		}
		if _, err := policy.Compile([]*policy.Policy{c.over}); err == nil || !strings.HasPrefix(err.Error(), "many.yaml:") || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%s over the limit: %v", c.what, err)
		}
	}
}

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

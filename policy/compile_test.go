package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dunnage-project/dunnage/policy"
)

// rules is a policy of n allow rules on the paths that text gives.
func rules(t testing.TB, n int, text func(int) string) *policy.Policy {
	t.Helper()
	p := &policy.Policy{Name: "many"}
	for i := range n {
		pos := policy.Position{File: "many.yaml", Line: i + 1, Column: 1}
		ps, err := policy.ParsePattern(text(i), pos)
		if err != nil {
			t.Fatal(err)
		}
		p.Rules = append(p.Rules, policy.Rule{Paths: ps, Access: 1 << policy.Read, Pos: pos})
	}
	return p
}

func literal(i int) string { return fmt.Sprintf("/srv/d%d/e%d/file%d", i%100, i%1000, i) }
func globbed(i int) string { return fmt.Sprintf("/srv/d%d/*/e%d*/**/f%d", i%100, i%10, i) }

func shallow(i int) string { return fmt.Sprintf("/srv/d%d/*/e%d*/f%d", i%100, i%10, i) }

// The compiler keeps its times, with room for a slow machine: a change of
// complexity fails.
func TestCompileTimes(t *testing.T) {
	for _, c := range []struct {
		name  string
		p     *policy.Policy
		limit time.Duration
	}{
		{"10,000 literal paths", rules(t, 10_000, literal), 200 * time.Millisecond},
		{"1,000 globs", rules(t, 1000, globbed), 500 * time.Millisecond},
		{"20 rules", rules(t, 20, globbed), 2 * time.Millisecond},
		{"1,000 globs of many meanings", diverse(t, rules(t, 1000, globbed), 50), 500 * time.Millisecond},
		{"1,000 globs, 500 lists of executables", diverse(t, rules(t, 1000, shallow), 500), 500 * time.Millisecond},
		{"10,000 literal paths of many meanings", diverse(t, rules(t, 10_000, literal), 50), 200 * time.Millisecond},
	} {
		best := time.Hour
		var a *policy.Automaton
		for i := 0; i < 20 && best > c.limit; i++ { // the machine may be busy
			start := time.Now()
			var err error
			if a, err = policy.Compile([]*policy.Policy{c.p}); err != nil {
				t.Fatal(err)
			}
			best = min(best, time.Since(start))
		}
		t.Logf("%s: %v, %d states", c.name, best, len(a.Paths.States))
		if best > 4*c.limit {
			t.Errorf("%s took %v, wanted %v", c.name, best, c.limit)
		}
	}
}

func TestExplosionIsRefused(t *testing.T) {
	start := time.Now()
	p := rules(t, 40, func(i int) string { return fmt.Sprintf("/**/a%d/**/b%d/**/c%d/**/d%d", i, i, i, i) })
	_, err := policy.Compile([]*policy.Policy{p})
	if err == nil {
		t.Fatal("compiled")
	}
	if !strings.HasPrefix(err.Error(), "many.yaml:") || !strings.Contains(err.Error(), "states") {
		t.Errorf("the error does not name the rule: %v", err)
	}
	t.Logf("refused in %v: %v", time.Since(start), err)
}

func BenchmarkCompileLiteral10000(b *testing.B) { benchmarkCompile(b, rules(b, 10_000, literal)) }
func BenchmarkCompileGlob1000(b *testing.B)     { benchmarkCompile(b, rules(b, 1000, globbed)) }
func BenchmarkCompile20(b *testing.B)           { benchmarkCompile(b, rules(b, 20, globbed)) }

func benchmarkCompile(b *testing.B, p *policy.Policy) {
	for b.Loop() {
		if _, err := policy.Compile([]*policy.Policy{p}); err != nil {
			b.Fatal(err)
		}
	}
}

// The bound on layers, at its edge and over it.
func TestLayersBound(t *testing.T) {
	p := rules(t, 1, literal)
	if _, err := policy.Compile(slices.Repeat([]*policy.Policy{p}, policy.MaxLayers)); err != nil {
		t.Errorf("%d layers: %v", policy.MaxLayers, err)
	}
	if _, err := policy.Compile(slices.Repeat([]*policy.Policy{p}, policy.MaxLayers+1)); err == nil {
		t.Errorf("%d layers compile", policy.MaxLayers+1)
	}
	if _, err := policy.Compile(nil); err == nil {
		t.Error("no layers compile")
	}
}

package policy_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
)

const reference = "../docs/policy.md"

// Each example of the reference loads, compiles and decides as it says.
func TestReferenceExamples(t *testing.T) {
	data, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(data), "```")
	cases := 0
	for i := 1; i < len(parts); i += 2 {
		text, ok := strings.CutPrefix(parts[i], "yaml\n")
		if !ok {
			continue
		}
		file := filepath.Join(t.TempDir(), "example.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		set := policy.LoadFiles(file)
		tests, diags := policy.ParseTests(file, []byte(text))
		if err := append(set.Problems(), diags...).Err(); err != nil || len(tests) == 0 {
			t.Fatalf("%d tests, %v in\n%s", len(tests), err, text)
		}
		for _, name := range set.Names() {
			p, err := set.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := policy.Compile([]*policy.Policy{p}); err != nil {
				t.Error(err)
			}
		}
		for _, test := range tests {
			var layers []*policy.Policy
			for _, in := range test.Layers {
				p, err := set.Lookup(in.Name)
				if err != nil {
					t.Fatal(err)
				}
				layers = append(layers, p.For(test.Container)...)
			}
			a, err := policy.Compile(layers)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range test.Cases {
				for k := range policy.Kind(policy.NumKinds) {
					allowed, audited := a.Decide(c.Subject, c.Path, k)
					if got := map[bool]string{true: "audit", false: map[bool]string{true: "allow", false: "deny"}[allowed]}[audited]; c.Access.Has(k) && got != c.Want {
						t.Errorf("%s: the automaton says %s", c.Pos, got)
					}
				}
			}
			results, err := test.Run(set)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				cases++
				if r.Err != nil {
					t.Error(r.Err)
				}
			}
		}
	}
	if cases < 25 {
		t.Errorf("only %d cases found in %s", cases, reference)
	}
}

// The limits are the ones that the reference states, and hold at and over the
// edge.
func TestLimits(t *testing.T) {
	data, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	for text, n := range map[string]int{
		"bytes of a file": policy.MaxFile, "characters of a policy's name": 128,
		"states of one automaton": policy.MaxStates, "edges of one automaton": policy.MaxEdges,
		"states of the byte automaton for the globs of one directory level": policy.MaxGlobStates,
		"bytes of a path": policy.MaxPath, "bytes of a name": policy.MaxName,
		"paths that the braces of one text give": policy.MaxExpansions, "rules of all layers": policy.MaxRules,
		"paths of a file, braces expanded":                  policy.MaxPatterns,
		`distinct lists of executables, "anybody" included`: policy.MaxGroups, "layers of one container": policy.MaxLayers,
	} {
		if row := fmt.Sprintf("| %s | %d |", text, n); !strings.Contains(string(data), row) {
			t.Errorf("%s lacks %q", reference, row)
		}
	}
	name := func(n int) string { return strings.Repeat("x", n) }
	deep := strings.Repeat("/"+name(14), 273) // 4,095 bytes
	ten := "{" + strings.Repeat("a,", 15) + "b}"
	for _, c := range []struct {
		what, at, over string
	}{
		{"name", "/" + name(255), "/" + name(256)},
		{"name of a glob", "/*" + strings.Repeat("?", 255), "/*" + strings.Repeat("?", 256)},
		{"path", deep, deep + "x"},
		{"braces", "/" + ten + ten + ten, "/" + ten + ten + ten + "{a,b}"},
	} {
		if _, err := policy.ParsePattern(c.at, policy.Position{}); err != nil {
			t.Errorf("%s at the limit: %v", c.what, err)
		}
		if _, err := policy.ParsePattern(c.over, policy.Position{}); err == nil {
			t.Errorf("%s over the limit is accepted", c.what)
		}
	}
	const head = "apiVersion: dunnage.io/v1\nkind: Policy\nmetadata: {name: big}\nspec:\n  default: deny\n  rules:\n"
	rule := "  - {effect: allow, paths: [/a], access: [read]}\n"
	if ps, diags := policy.ParseFile("t.yaml", []byte(head+strings.Repeat(rule, policy.MaxRules))); len(ps) != 1 {
		t.Errorf("rules at the limit: %v", diags)
	}
	if ps, _ := policy.ParseFile("t.yaml", []byte(head+strings.Repeat(rule, policy.MaxRules+1))); len(ps) != 0 {
		t.Error("rules over the limit are accepted")
	}
	file := func(n int) []byte {
		text := []byte(head + rule + "#")
		return append(text, bytes.Repeat([]byte{'x'}, n-len(text))...)
	}
	for n, want := range map[int]int{policy.MaxFile: 1, policy.MaxFile + 1: 0} {
		if ps, diags := policy.ParseFile("t.yaml", file(n)); len(ps) != want {
			t.Errorf("a file of %d bytes: %v", n, diags)
		}
	}
	for n, want := range map[int]int{128: 1, 129: 0} {
		if ps, _ := policy.ParseFile("t.yaml", []byte(strings.Replace(head+rule, "big", name(n), 1))); len(ps) != want {
			t.Errorf("a policy's name of %d characters: %d policies", n, len(ps))
		}
	}
	bomb := `  - {effect: allow, access: [read], paths: ["/{a,b,c,d}{a,b,c,d}{a,b,c,d}{a,b,c,d}{a,b,c,d}{a,b,c,d}"]}` + "\n"
	rest := policy.MaxPatterns - policy.MaxPatterns/4096*4096
	bombs := head + strings.Repeat(bomb, policy.MaxPatterns/4096) + strings.Repeat(rule, rest)
	if ps, diags := policy.ParseFile("t.yaml", []byte(bombs)); len(ps) != 1 {
		t.Errorf("paths at the limit: %v", diags)
	}
	if ps, diags := policy.ParseFile("t.yaml", []byte(bombs+rule+rule)); len(ps) != 0 || len(diags) != 1 {
		t.Errorf("paths over the limit: %d policies, %d diagnostics", len(ps), len(diags))
	}
	if ps, diags := policy.ParseFile("t.yaml", []byte(head+strings.Repeat(bomb, 5000))); len(ps) != 0 || len(diags) != 1 {
		t.Errorf("paths far over the limit: %d policies, %d diagnostics", len(ps), len(diags))
	}
	groups := func(n int) []*policy.Policy {
		var b strings.Builder
		b.WriteString(head)
		for i := range n {
			fmt.Fprintf(&b, "  - {effect: allow, paths: [/d%d], access: [read], executables: [/x%d]}\n", i, i)
		}
		ps, _ := policy.ParseFile("t.yaml", []byte(b.String()))
		return ps
	}
	if _, err := policy.Compile(groups(policy.MaxGroups - 1)); err != nil {
		t.Errorf("groups at the limit: %v", err)
	}
	if _, err := policy.Compile(groups(policy.MaxGroups)); err == nil {
		t.Error("groups over the limit are accepted")
	}
}

package policy_test

import (
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
		"bytes of a file": policy.MaxFile, "bytes of a path": policy.MaxPath, "bytes of a name": policy.MaxName,
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
	if ps, _ := policy.ParseFile("t.yaml", make([]byte, policy.MaxFile+1)); len(ps) != 0 {
		t.Error("a file over the limit is accepted")
	}
	bomb := `  - {effect: allow, access: [read], paths: ["/{a,b,c,d}{a,b,c,d}{a,b,c,d}{a,b,c,d}{a,b,c,d}{a,b,c,d}"]}` + "\n"
	if ps, diags := policy.ParseFile("t.yaml", []byte(head+strings.Repeat(bomb, 48))); len(ps) != 1 {
		t.Errorf("paths under the limit: %v", diags)
	}
	if ps, diags := policy.ParseFile("t.yaml", []byte(head+strings.Repeat(bomb, 5000))); len(ps) != 0 || len(diags) != 1 {
		t.Errorf("paths over the limit: %d policies, %d diagnostics", len(ps), len(diags))
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

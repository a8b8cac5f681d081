package policy_test

import (
	"os"
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
)

const blocks = "../packaging/policies"

// Every block loads, compiles and does what its cases say; none is without a
// positive and a negative case.
func TestBlocks(t *testing.T) {
	set, err := policy.LoadDir(blocks)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range set.Problems() {
		t.Error(d)
	}
	const file = blocks + "/blocks.test.yaml"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tests, diags := policy.ParseTests(file, data)
	if diags.Err() != nil {
		t.Fatal(diags.Err())
	}
	wants := map[string]map[string]bool{}
	for _, test := range tests {
		name := test.Layers[0].Name
		wants[name] = map[string]bool{}
		results, err := test.Run(set)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			wants[name][r.Case.Want] = true
			if r.Err != nil {
				t.Error(r.Err)
			}
		}
	}
	for _, name := range set.Names() {
		p, err := set.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range policy.Lint(p) {
			t.Logf("%s: %s", name, d)
		}
		if _, err := policy.Compile([]*policy.Policy{p}); err != nil {
			t.Error(err)
		}
		if !wants[name]["allow"] || !wants[name]["deny"] {
			t.Errorf("%s: a case each for allow and deny is needed", name)
		}
	}
}

// A case that does not hold is reported with the rule that decided.
func TestCaseFails(t *testing.T) {
	set, err := policy.LoadDir(blocks)
	if err != nil {
		t.Fatal(err)
	}
	tests, diags := policy.ParseTests("t.yaml", []byte("apiVersion: dunnage.io/v1\nkind: PolicyTest\n"+
		"spec: {policy: signer, cases: [{exe: /bin/cat, path: /etc/signer/key.pem, access: read, want: allow}]}"))
	if diags.Err() != nil {
		t.Fatal(diags.Err())
	}
	results, err := tests[0].Run(set)
	if err != nil || len(results) != 1 || results[0].Err == nil {
		t.Fatalf("%v, %v", results, err)
	}
	const want = `t.yaml:3:32: read of "/etc/signer/key.pem": want allow, have deny, by the rule at ../packaging/policies/signer.yaml:10:5 of policy "signer"`
	if got := results[0].Err.Error(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestLint(t *testing.T) {
	p := one(t, `apiVersion: dunnage.io/v1
kind: Policy
metadata: {name: t}
spec:
  default: deny
  rules:
  - {effect: deny, paths: [/etc], access: [all]}
  - {effect: allow, paths: [/etc/passwd], access: [read]}
  - {effect: only, paths: [/secret], access: [read], executables: []}
  - {effect: only, paths: [/data], access: [read], executables: [/opt/x]}
  - {effect: allow, paths: [/bin/sh], access: [read]}
  - {effect: allow, paths: [/srv], access: [read]}
  - {effect: allow, paths: [/srv/a*], access: [read]}
`)
	want := []struct {
		line int
		text string
	}{{8, "never used"}, {9, "nobody"}, {10, "no rule lets"}, {11, "symbolic link"}, {13, "never used"}}
	got := policy.Lint(p)
	if len(got) != len(want) {
		t.Fatalf("have %v", got)
	}
	for i, w := range want {
		if got[i].Pos.Line != w.line || !strings.Contains(got[i].Message, w.text) || got[i].Hint == "" || !got[i].Warning {
			t.Errorf("have %v, want line %d with %q", got[i], w.line, w.text)
		}
	}
}

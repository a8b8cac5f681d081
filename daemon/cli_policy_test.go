package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/policy"
)

// cli runs a command and returns what it prints.
func cli(args ...string) (string, error) {
	root := rootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

func TestPolicyCommands(t *testing.T) {
	const pg = "../packaging/policies/bomfather-postgres.yaml"
	dir := t.TempDir()
	narrow := filepath.Join(dir, "narrow.yaml")
	if err := os.WriteFile(narrow, []byte("policies:\n  - executable: \"filepath = /usr/lib/postgresql/15/bin/postgres\"\n    can_access_dirs:\n      - \"/var/lib/postgresql:read\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	wrong := filepath.Join(dir, "wrong.test.yaml")
	if err := os.WriteFile(wrong, []byte("apiVersion: dunnage.io/v1\nkind: PolicyTest\nspec:\n  policy: narrow\n  cases:\n  - {exe: /bin/cat, path: /var/lib/postgresql/x, access: read, want: allow}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	variants, perVariant := filepath.Join(dir, "v.yaml"), filepath.Join(dir, "v.test.yaml")
	const asks = "apiVersion: dunnage.io/v1\nkind: PolicyTest\nspec:\n  policy: v\n  container: shop:p:web\n  cases: [{path: /srv/x, access: read, want: deny}]\n"
	for file, text := range map[string]string{variants: variantsText, perVariant: asks + "---\n" +
		strings.Replace(strings.Replace(asks, "deny", "allow", 1), "  container: shop:p:web\n", "", 1)} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	report := filepath.Join(dir, "report.xml")
	for _, c := range []struct {
		args []string
		want string
		fail bool
	}{
		{[]string{"check", pg}, "bomfather-postgres: 3 rules", false},
		{[]string{"check", wrong}, "", false},
		{[]string{"explain", pg, "/var/lib/postgresql/x", "--exe", "/bin/cat"}, "denied by only " + pg + ":4:9\n  near: only", false},
		{[]string{"check", "-o", "json", pg}, "\"rules\": 3", false},
		{[]string{"check", "-o", "json", dir + "/absent.yaml"}, "\"severity\": \"error\"", true},
		{[]string{"explain", "-o", "json", pg, "/var/lib/postgresql/x", "--exe", "/bin/cat"}, `"why": "it names other executables"`, false},
		{[]string{"explain", variants, "/srv/x"}, "v: allowed by default", false},
		{[]string{"explain", variants, "/srv/x", "--container", "shop:p:web"}, "v: denied by only", false},
		{[]string{"explain", variants, "/srv/x", "--container", "shop:p"}, "", true},
		{[]string{"explain", variants, "/data/x", "--exe", "/bin/sh", "--inherited", "/bin/base"}, "v: allowed by only", false},
		{[]string{"check", variants}, "v for shop:*:web: 3 rules", false},
		{[]string{"show", variants, "--container", "shop:p:web"}, "2 subject groups", false},
		{[]string{"diff", pg, variants, "--container", "shop:p:web"}, "allow → deny: read, an exec into the container: [/srv]", false},
		{[]string{"test", variants, perVariant}, "2 passed", false},
		{[]string{"test", variants, perVariant, "--container", "shop:p:web"}, "1 passed, 1 failed", true},
		{[]string{"explain", "no-such-policy", "/x"}, "", true},
		{[]string{"explain", pg, "/etc/passwd"}, "allowed by default", false},
		{[]string{"explain", pg, "/x", "--access", "fly"}, "", true},
		{[]string{"explain", "../packaging/policies/postgres.yaml", "/etc/shadow", "--exe", "/bin/cat"}, "postgres: denied by", false},
		{[]string{"diff", pg, narrow}, "allow → deny: modify, /usr/lib/postgresql/15/bin/postgres: [/var/lib/postgresql]", false},
		{[]string{"diff", pg, pg}, "", false},
		{[]string{"test", narrow, wrong, "--junit", report}, "wrong.test.yaml:6:5: read of", true},
		{[]string{"test", narrow}, "0 passed", true},
		{[]string{"convert", pg}, "effect: only", false},
		{[]string{"fmt", narrow}, "can_access_dirs", false},
		{[]string{"show", pg}, "3 rows", false},
		{[]string{"schema"}, `"$ref": "#/$defs/policyTest"`, false},
		{[]string{"show", "--automaton", pg}, "digraph paths", false},
	} {
		out, err := cli(append([]string{"policy"}, c.args...)...)
		if (err != nil) != c.fail || !strings.Contains(out, c.want) {
			t.Errorf("dunnage policy %s: %v\n%s\nwant %q", strings.Join(c.args, " "), err, out, c.want)
		}
	}
	if data, err := os.ReadFile(report); err != nil || !strings.Contains(string(data), `tests="1" failures="1"`) {
		t.Errorf("the JUnit report: %s, %v", data, err)
	}
}

// A gap of the kernel is a warning at each rule, and at the default, that meets it.
func TestUnenforced(t *testing.T) {
	ps, diags := policy.ParseFile("t.yaml", []byte(`apiVersion: dunnage.io/v1
kind: Policy
metadata: {name: t}
spec:
  default: {read: allow, write: deny, exec: allow}
  mounts: allow
  memfdExec: allow
  rules:
  - {effect: allow, paths: [/tmp], access: [write]}
  - {effect: deny, paths: [/etc], access: [attr]}
  - {effect: only, paths: [/data], access: [read, create], executables: [/bin/x]}
`))
	if len(ps) != 1 {
		t.Fatal(diags)
	}
	gap := func(a policy.AccessSet) []bpf.Gap {
		return []bpf.Gap{{Need: policy.Need{Access: a}, Detail: "no hook", Remedy: "another kernel"}}
	}
	for _, c := range []struct {
		gaps  []bpf.Gap
		lines []int
	}{
		{nil, nil},
		{gap(1 << policy.Attr), []int{1, 10}},
		{gap(1 << policy.Create), []int{1, 11}},
		{gap(1 << policy.Exec), nil},
		{[]bpf.Gap{{Need: policy.Need{Mounts: true}}}, nil},
	} {
		var lines []int
		for _, d := range unenforced(ps[0], c.gaps) {
			lines = append(lines, d.Pos.Line)
			if !d.Warning || d.Hint == "" || !strings.HasPrefix(d.Message, "not enforced here (") {
				t.Errorf("%+v", d)
			}
		}
		if !slices.Equal(lines, c.lines) {
			t.Errorf("%+v: lines %v, want %v", c.gaps, lines, c.lines)
		}
	}
}

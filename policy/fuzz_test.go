package policy_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
)

// bounded fails if f takes more memory than a text of n bytes may cost.
func bounded(t *testing.T, n int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20+uint64(n)*1000 {
		t.Fatalf("%d bytes of text took %d MB", n, used>>20)
	}
}

// alike asks two sets of layers, and the automaton of the first, about what the
// rules of the first name and about what is near it.
func alike(t *testing.T, one, two []*policy.Policy) {
	t.Helper()
	paths, programs := []string{"/", "/a", "/a/b"}, []string{"/a"}
	for _, p := range one {
		for _, r := range p.Rules {
			for _, pattern := range r.Paths[:min(3, len(r.Paths))] {
				paths = append(paths, pattern.Text, pattern.Text+"/x")
			}
			for _, pattern := range r.Executables[:min(3, len(r.Executables))] {
				programs = append(programs, pattern.Text)
			}
		}
	}
	paths, programs = paths[:min(20, len(paths))], programs[:min(6, len(programs))]
	a, err := policy.Compile(one)
	if err != nil {
		a = nil // over a limit: nothing to compare with
	}
	for _, path := range paths {
		for _, program := range programs {
			for _, s := range []policy.Subject{{Programs: []string{program}}, {Inherited: []string{program}}} {
				for k := range policy.Kind(policy.NumKinds) {
					v, w := policy.Decide(one, s, path, k), policy.Decide(two, s, path, k)
					if v.Allowed != w.Allowed || v.Audited != w.Audited {
						t.Fatalf("%v %s %q: %v/%v, read again %v/%v", s, k, path, v.Allowed, v.Audited, w.Allowed, w.Audited)
					}
					if a == nil {
						continue
					}
					if _, ok := a.Paths.Run(path); !ok {
						continue
					}
					if _, ok := a.Programs.Run(program); !ok {
						continue
					}
					if allowed, audited := a.Decide(s, path, k); allowed != v.Allowed || audited != v.Audited {
						t.Fatalf("%v %s %q: Decide says %v/%v, the automaton %v/%v", s, k, path, v.Allowed, v.Audited, allowed, audited)
					}
				}
			}
		}
	}
}

// fuzzPolicy: a text gives policies or errors with a place, never both; what it
// gives is valid, and printed in the native form and read again it means and
// prints the same.
func fuzzPolicy(t *testing.T, data []byte) {
	var ps []*policy.Policy
	var diags policy.Diagnostics
	bounded(t, len(data), func() { ps, diags = policy.ParseFile("fuzz.yaml", data) })
	if len(ps) > 0 && diags.Err() != nil {
		t.Fatal("policies in spite of an error")
	}
	for _, d := range diags {
		if d.Pos.File != "fuzz.yaml" || d.Pos.Line < 1 || d.Message == "" {
			t.Fatalf("a diagnostic without a place or a word: %+v", d)
		}
	}
	for _, p := range ps {
		if !policy.ValidName(p.Name) {
			t.Fatalf("name %q", p.Name)
		}
		text := policy.Convert(p)
		again, diags := policy.ParseFile("again.yaml", text)
		if len(again) == 0 {
			t.Fatalf("converted: %v\n%s", diags, text)
		}
		var printed []byte
		for _, q := range again {
			if q.And != nil || len(q.Variants) > 0 {
				t.Fatalf("the native form has layers or variants:\n%s", text)
			}
		}
		if len(again) == 1 {
			if printed = policy.Convert(again[0]); string(printed) != string(text) {
				t.Fatalf("first:\n%s\nthen:\n%s", text, printed)
			}
		}
		layers := p.For(policy.Container{})
		if len(layers) <= len(again) {
			alike(t, layers, again[:len(layers)])
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(postgres))
	f.Add([]byte("apiVersion: dunnage.io/v1\nkind: Policy\nmetadata: {name: a}\nspec: {default: {read: allow, write: deny, exec: allow}, mounts: true, mode: audit, rules: [{effect: deny, paths: [\"/{a,b}/**/*.c\"], access: [all], exact: true}]}\n"))
	f.Add([]byte("a: &a [*a]\n---\nb: {<<: *a}\n"))
	f.Fuzz(fuzzPolicy)
}

// Bomfather's form, by its own entries.
func FuzzBomfather(f *testing.F) {
	f.Add("filepath = /p", "/a:read", "/a/b", true)
	f.Add("filepath = /w | container = shop:*:web", "/a:write", "/b", false)
	f.Fuzz(func(t *testing.T, executable, dir, run string, flag bool) {
		text := "policies:\n- {executable: " + quoted(executable) + ", can_access_dirs: [" + quoted(dir) + "], can_run: [" + quoted(run) + "]}\n"
		if flag {
			text += "- {executable: \"filepath = /other\", can_access_dirs: [" + quoted(dir) + "]}\n"
		}
		fuzzPolicy(t, []byte(text))
	})
}

// quoted is a text as YAML's double quotes have it.
func quoted(s string) string {
	out := []byte{'"'}
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c < ' ' || c > '~':
			const hex = "0123456789abcdef"
			out = append(out, '\\', 'x', hex[c>>4], hex[c&15])
		default:
			out = append(out, c)
		}
	}
	return string(append(out, '"'))
}

// A file of cases: what is accepted asks something that can be answered, and
// every answer is given.
func FuzzTests(f *testing.F) {
	f.Add([]byte("apiVersion: dunnage.io/v1\nkind: PolicyTest\nspec: {policy: p, cases: [{path: /a, access: read, want: deny}]}"))
	f.Add([]byte("apiVersion: dunnage.io/v1\nkind: PolicyTest\nspec: {layers: [p, p], container: \"a:b:c\", cases: [{exe: [/x, /y], inherited: /z, path: \"/*\", access: [read, exec], want: audit}]}"))
	dir := f.TempDir()
	if err := os.WriteFile(dir+"/p.yaml", []byte("apiVersion: dunnage.io/v1\nkind: Policy\nmetadata: {name: p}\nspec: {default: allow, rules: [{effect: deny, paths: [/a], access: [read]}]}\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	set, err := policy.LoadDir(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var tests []*policy.Test
		var diags policy.Diagnostics
		bounded(t, len(data), func() { tests, diags = policy.ParseTests("fuzz.yaml", data) })
		if len(tests) > 0 && diags.Err() != nil {
			t.Fatal("tests in spite of an error")
		}
		for _, test := range tests {
			if len(test.Layers) == 0 || len(test.Cases) == 0 {
				t.Fatalf("it asks nothing: %+v", test)
			}
			for _, c := range test.Cases {
				if c.Path == "" || c.Path[0] != '/' || c.Access == 0 || c.Access&^policy.AllAccess != 0 || c.Want != "allow" && c.Want != "deny" && c.Want != "audit" {
					t.Fatalf("a case that means nothing: %+v", c)
				}
			}
			if results, err := test.Run(set); err == nil && len(results) != len(test.Cases) {
				t.Fatalf("%d cases, %d results", len(test.Cases), len(results))
			}
		}
	})
}

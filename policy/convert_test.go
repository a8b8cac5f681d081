package policy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
	"github.com/dunnage-project/dunnage/policy/policytest"
)

// What Convert prints gives the same verdicts and prints the same again.
func TestConvert(t *testing.T) {
	g := policytest.New(7)
	for range 200 {
		p := g.Policy(6)
		p.Name = "random"
		text := policy.Convert(p)
		if strings.ContainsRune(string(text), '\uFFFD') {
			continue
		}
		ps, diags := policy.ParseFile("t.yaml", text)
		if len(ps) != 1 {
			t.Fatalf("%v\n%s", diags, text)
		}
		if again := policy.Convert(ps[0]); string(again) != string(text) {
			t.Fatalf("first:\n%s\nthen:\n%s", text, again)
		}
		for range 50 {
			q := g.Question()
			a := policy.Decide([]*policy.Policy{p}, q.Subject, q.Path, q.Kind)
			b := policy.Decide(ps, q.Subject, q.Path, q.Kind)
			if a.Allowed != b.Allowed || a.Audited != b.Audited || a.Reason != b.Reason {
				t.Fatalf("%+v: %+v, converted %+v\n%s", q, a, b, text)
			}
		}
	}
}

// bomfatherModel is the walk of Bomfather's slow path, from the deepest
// directory to the root: any level that grants wins; otherwise a level with a
// rule blocks.
type bomfatherModel struct {
	read, write map[string][]string // protected directory → programs
	readOnly    []string
	trusted     []string
}

func (m bomfatherModel) allowed(programs []string, path string, write bool) bool {
	if write && slices.Contains(m.trusted, path) {
		return false
	}
	blocked := false
	for level := path; level != ""; level = level[:strings.LastIndexByte(level, '/')] {
		readers, named := m.read[level]
		only := slices.Contains(m.readOnly, level)
		grant := readers
		if write {
			grant = m.write[level]
		}
		switch {
		case named && slices.ContainsFunc(programs, func(p string) bool { return slices.Contains(grant, p) }):
			return true
		case named && !write && only:
			return true
		case named, only && write:
			blocked = true
		}
	}
	return !blocked
}

func TestBomfatherAgrees(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 0))
	dirs := []string{"/a", "/a/b", "/a/b/c", "/d", "/a/x", "/d/*"}
	exes := []string{"/bin/p", "/bin/q", "/a/p", "/a/b/q"}
	paths := append([]string{"/", "/ab", "/a/b/c/d/e", "/d/e", "/d/*/f", "/a/x/y", "/bin"}, append(dirs, exes...)...)
	verdicts := map[bool]int{}
	for range 3000 {
		m := bomfatherModel{map[string][]string{}, map[string][]string{}, nil, nil}
		text := "policies:\n"
		for _, exe := range exes[:1+r.IntN(len(exes))] {
			text += fmt.Sprintf("- executable: \"filepath = %s\"\n  can_access_dirs:\n", exe)
			m.trusted = append(m.trusted, exe)
			for range 1 + r.IntN(3) {
				dir, word := dirs[r.IntN(len(dirs))], "read"
				m.read[dir] = append(m.read[dir], exe)
				if r.IntN(2) == 0 {
					word = "write"
					m.write[dir] = append(m.write[dir], exe)
				}
				text += fmt.Sprintf("  - \"%s:%s\"\n", dir, word)
			}
		}
		text += "attributes:\n"
		for range 1 + r.IntN(2) {
			dir := dirs[r.IntN(len(dirs))]
			m.readOnly = append(m.readOnly, dir)
			text += fmt.Sprintf("- {path: \"type = filepath | filepath = %s\", global_read_only: true}\n", dir)
		}
		p := one(t, text)
		for range 100 {
			path, write := paths[r.IntN(len(paths))], r.IntN(2) == 0
			now, before := exes[r.IntN(len(exes))], exes[r.IntN(len(exes))]
			s, k := policy.Subject{Programs: []string{now}, Inherited: []string{before}}, policy.Read
			if write {
				k = policy.Modify
			}
			got := policy.Decide([]*policy.Policy{p}, s, path, k).Allowed
			want := m.allowed([]string{now, before}, path, write)
			if got != want {
				t.Fatalf("%s, before it %s, %s %s: %v, the walk says %v\n%s", now, before, k, path, got, want, text)
			}
			verdicts[want]++
		}
	}
	if verdicts[true] < 10_000 || verdicts[false] < 10_000 {
		t.Errorf("verdicts too one-sided: %v", verdicts)
	}
}

func TestBomfatherRefusesRunInProtected(t *testing.T) {
	_, diags := policy.ParseFile("t.yaml", []byte(`policies: [{executable: "filepath = /p", can_access_dirs: ["/a:read"], can_run: ["/a/b"]}]`))
	if err := diags.Err(); err == nil || !strings.Contains(err.Error(), "both at once") {
		t.Errorf("have %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(postgres))
	f.Add([]byte("policies: [{executable: \"filepath = /a\", can_access_dirs: [\"/x:read\"]}]"))
	f.Add([]byte("apiVersion: dunnage.io/v1\nkind: PolicyTest\nspec: {policy: p, cases: [{path: /a, access: read, want: deny}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ps, diags := policy.ParseFile("fuzz.yaml", data)
		if len(ps) > 0 && diags.Err() != nil {
			t.Fatal("policies in spite of an error")
		}
		policy.ParseTests("fuzz.yaml", data)
		for _, p := range ps {
			if again, diags := policy.ParseFile("again.yaml", policy.Convert(p)); len(again) != 1 {
				t.Fatalf("converted: %v\n%s", diags, policy.Convert(p))
			}
		}
	})
}

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
// rule blocks. An execution is a read, and then asks for the program's own bit.
type bomfatherModel struct {
	read, write map[string][]string // protected directory → programs
	run         map[string][]string // protected program → programs
	readOnly    []string
	trusted     []string
}

func (m bomfatherModel) allowed(programs []string, path string, k policy.Kind) bool {
	one := func(granted []string) bool {
		return slices.ContainsFunc(programs, func(p string) bool { return slices.Contains(granted, p) })
	}
	write := k == policy.Modify
	if write && slices.Contains(m.trusted, path) {
		return false
	}
	if runners, named := m.run[path]; k == policy.Exec && named && !one(runners) {
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
		case named && one(grant):
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
	counts := map[string]int{}
	for range 3000 {
		m := bomfatherModel{map[string][]string{}, map[string][]string{}, map[string][]string{}, nil, nil}
		text := "policies:\n"
		for _, exe := range exes[:1+r.IntN(len(exes))] {
			form := "executable: \"filepath = %s\""
			if r.IntN(4) == 0 {
				form = "python: \"filepath = %s | libs = /a/x, /lib\""
				m.readOnly = append(m.readOnly, "/a/x", "/lib")
			}
			text += fmt.Sprintf("- "+form+"\n  can_access_dirs:\n", exe)
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
			if r.IntN(3) == 0 {
				run := append(exes, "/a/b/c/d/e")[r.IntN(len(exes)+1)]
				m.run[run] = append(m.run[run], exe)
				text += fmt.Sprintf("  can_run: [%s]\n", run)
			}
		}
		text += "attributes:\n"
		for range 1 + r.IntN(2) {
			dir := dirs[r.IntN(len(dirs))]
			m.readOnly = append(m.readOnly, dir)
			text += fmt.Sprintf("- {path: \"type = filepath | filepath = %s\", global_read_only: true}\n", dir)
		}
		ps, diags := policy.ParseFile("t.yaml", []byte(text))
		if diags.Err() != nil {
			t.Fatalf("%v\n%s", diags, text)
		}
		entrypoint := !slices.ContainsFunc(diags, func(d policy.Diagnostic) bool { return strings.Contains(d.Message, "first program") })
		layers := ps[0].For(policy.Container{})
		counts[fmt.Sprintf("%d layers", len(layers))]++
		for range 100 {
			path, k := paths[r.IntN(len(paths))], [...]policy.Kind{policy.Read, policy.Modify, policy.Exec}[r.IntN(3)]
			now, before := exes[r.IntN(len(exes))], exes[r.IntN(len(exes))]
			s, programs := policy.Subject{Programs: []string{now}, Inherited: []string{before}}, []string{now, before}
			if r.IntN(8) == 0 && entrypoint {
				s, programs = policy.Subject{}, nil
			}
			got := policy.Decide(layers, s, path, k).Allowed
			want := m.allowed(programs, path, k)
			if got != want {
				t.Fatalf("%v, %s %s: %v, the walk says %v\n%s", programs, k, path, got, want, text)
			}
			counts[fmt.Sprintf("%s %v", k, want)]++
			counts[fmt.Sprintf("%d programs %v", len(programs), want)]++
		}
	}
	for what, least := range map[string]int{"1 layers": 100, "2 layers": 100, "read true": 10_000, "read false": 10_000, "exec true": 10_000,
		"exec false": 10_000, "modify true": 1000, "modify false": 10_000, "0 programs true": 1000, "0 programs false": 1000} {
		if counts[what] < least {
			t.Errorf("only %d of %q: %v", counts[what], what, counts)
		}
	}
}

// A program of can_run below a protected directory needs the right to read and
// the right to run: two layers, also when converted.
func TestBomfatherRunInProtected(t *testing.T) {
	const text = `policies:
- {executable: "filepath = /p", can_access_dirs: ["/a:read"]}
- {executable: "filepath = /q", can_run: ["/a/b"]}
- {executable: "filepath = /w | container = shop:*:web", can_access_dirs: ["/a:read"], can_run: ["/a/b"]}
`
	p := one(t, text)
	converted, diags := policy.ParseFile("c.yaml", policy.Convert(p))
	if len(converted) != 4 {
		t.Fatalf("%v\n%s", diags, policy.Convert(p))
	}
	shop := policy.Container{Namespace: "shop", Pod: "x", Name: "web"}
	for i, layers := range [][]*policy.Policy{p.For(policy.Container{}), p.For(shop), converted[:2], converted[2:]} {
		for _, c := range []struct {
			programs []string
			others   bool // without container =
			shop     bool
		}{{[]string{"/p"}, false, false}, {[]string{"/q"}, false, false}, {[]string{"/p", "/q"}, true, false}, {[]string{"/w"}, false, true}} {
			want := c.others
			if i%2 == 1 {
				want = c.shop
			}
			if got := policy.Decide(layers, policy.Subject{Programs: c.programs}, "/a/b", policy.Exec).Allowed; got != want || len(layers) != 2 {
				t.Errorf("%d: %v may run it: %v, %d layers", i, c.programs, got, len(layers))
			}
		}
	}
}

// What depends on arguments or on ptrace is refused by name.
func TestBomfatherRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`policies: [{python: "filepath = /p | libs = /l", python_argv_exact: [python3, /s.py], python_cwd: /srv}]`:                          "python_argv_exact",
		`policies: [{python: "filepath = /p | libs = /l", python_cwd: /srv}]`:                                                               "python_cwd",
		`policies: [{executable: "filepath = /p"}]` + "\nattributes: [{path: \"type = executable | filepath = /p\", allowed_ptrace: true}]": "allowed_ptrace",
	} {
		_, diags := policy.ParseFile("t.yaml", []byte(text))
		if err := diags.Err(); err == nil || !strings.Contains(err.Error(), want) || diags[len(diags)-1].Hint == "" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

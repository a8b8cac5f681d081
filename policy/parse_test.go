package policy_test

import (
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
)

const postgres = `apiVersion: dunnage.io/v1
kind: Policy
metadata: {name: postgres}
spec:
  default: deny
  rules:
  - {effect: only,  paths: ["/var/lib/postgresql"], access: [read, write], executables: ["/usr/lib/postgresql/*/bin/*"]}
  - {effect: allow, paths: ["/usr", "/lib", "/bin"], access: [read, exec]}
  - {effect: deny,  paths: ["/etc/shadow"], access: [read, write]}
`

func one(t *testing.T, text string) *policy.Policy {
	t.Helper()
	ps, diags := policy.ParseFile("t.yaml", []byte(text))
	if len(ps) != 1 {
		t.Fatalf("%d policies: %v", len(ps), diags)
	}
	return ps[0]
}

func TestNative(t *testing.T) {
	layers := []*policy.Policy{one(t, postgres)}
	pg := policy.Subject{Programs: []string{"/usr/lib/postgresql/15/bin/postgres"}}
	for _, c := range []struct {
		s    policy.Subject
		path string
		k    policy.Kind
		want bool
		line int
	}{
		{pg, "/var/lib/postgresql/15/main/PG_VERSION", policy.Read, true, 7},
		{pg, "/var/lib/postgresql", policy.Create, true, 7},
		{pg, "/var/lib/postgresqlx", policy.Read, false, 0},
		{policy.Subject{Programs: []string{"/bin/cat"}}, "/var/lib/postgresql/x", policy.Read, false, 7},
		{policy.Subject{}, "/var/lib/postgresql/x", policy.Read, false, 7},
		{policy.Subject{}, "/bin/cat", policy.Exec, true, 8},
		{pg, "/etc/shadow", policy.Read, false, 9},
		{pg, "/etc/passwd", policy.Read, false, 0},
	} {
		v := policy.Decide(layers, c.s, c.path, c.k)
		line := 0
		if v.Rule != nil {
			line = v.Rule.Pos.Line
		}
		if v.Allowed != c.want || line != c.line {
			t.Errorf("%v %s %s: %v by line %d, want %v by line %d", c.s, c.k, c.path, v.Allowed, line, c.want, c.line)
		}
	}
}

// Each mistake gives one error with its place and a remedy.
func TestErrors(t *testing.T) {
	change := func(old, new string) string { return strings.Replace(postgres, old, new, 1) }
	for _, c := range []struct{ text, want string }{
		{change("effect: only", "efect: only"), `t.yaml:7:6: error: unknown key "efect" in the rule` + "\n  hint: did you mean `effect`?"},
		{change("access: [read, exec]", "access: [reed]"), "t.yaml:8:63: error: access is the value \"reed\"\n  hint: did you mean `read`?"},
		{change(`"/etc/shadow"`, `"etc/shadow"`), `t.yaml:9:29: error: relative path "etc/shadow"`},
		{change(`"/etc/shadow"`, `"/etc/../shadow"`), `t.yaml:9:29: error: path "/etc/../shadow" has a component ".."`},
		{change(`"/etc/shadow"`, `"/etc/"`), `ends in a slash: write "/etc"`},
		{change(`, executables: ["/usr/lib/postgresql/*/bin/*"]`, ""), "t.yaml:7:5: error: the rule says `only` but not who"},
		{change("default: deny", "default: {read: deny}"), "default says nothing of write, exec"},
		{change("  default: deny\n", ""), "spec lacks a default"},
		{change("kind: Policy", "kind: Polcy"), "did you mean `Policy`?"},
		{change("name: postgres", "name: Post gres"), `the policy's name is "Post gres"`},
		{change("spec:", "spec: {}\nspec:"), "key \"spec\" is given twice"},
		{change("name: postgres", "name: &x pg, description: *x"), "aliases are not read"},
		{"", "the file has no policy"},
		{"a: [", "not YAML"},
		{"policies: [{executable: \"filepath = /a\", is_allowed_to_access_ip: [x]}]", "is_allowed_to_access_ip is not supported"},
		{"policies: [{executable: \"filepath = /a | container = a:b\"}]", "container is \"a:b\"\n  hint: write namespace:pod:container"},
		{"policies: [{executable: \"filepath = /a | container = a:[:c\"}]", "container is \"a:[:c\""},
		{"policies: [{executable: \"filepath = /a | container = a:b:c:d\"}]", "container is \"a:b:c:d\""},
		{"policies: [{executable: \"filepath = /a | container = a:b:c\\nx\"}]", "container is \"a:b:c\\nx\""},
		{"policies: [{executable: \"filepath = /a | container = a:b:c | container = d:e:f\"}]", "key \"container\" is given twice"},
		{"policies: [{executable: \"filepath = a\"}]", "relative path"},
		{"policies: [{executable: \"filepath = /a\", can_access_dirs: [\"/x:rw\"]}]", `can_access_dirs: "/x:rw"`},
	} {
		ps, diags := policy.ParseFile("t.yaml", []byte(c.text))
		if len(ps) != 0 || diags.Err() == nil {
			t.Errorf("accepted: %s", c.text)
			continue
		}
		if !strings.Contains(diags.Err().Error(), c.want) {
			t.Errorf("want %q in:\n%v", c.want, diags.Err())
		}
	}
}

func TestBomfatherPostgres(t *testing.T) {
	p := one(t, `policies:
  - executable: "filepath = /usr/lib/postgresql/15/bin/postgres"
    can_access_dirs:
      - "/var/lib/postgresql:write"
`)
	if p.Name != "t" {
		t.Errorf("name %q", p.Name)
	}
	layers := []*policy.Policy{p}
	pg, sh := "/usr/lib/postgresql/15/bin/postgres", "/bin/sh"
	for _, c := range []struct {
		s    policy.Subject
		path string
		k    policy.Kind
		want bool
	}{
		{policy.Subject{Programs: []string{pg}}, "/var/lib/postgresql/15/x", policy.Modify, true},
		{policy.Subject{Programs: []string{sh}, Inherited: []string{pg}}, "/var/lib/postgresql/15/x", policy.Read, true},
		{policy.Subject{Programs: []string{sh}}, "/var/lib/postgresql/15/x", policy.Read, false},
		{policy.Subject{Programs: []string{sh}}, "/var/lib/postgresql", policy.Create, false},
		{policy.Subject{Programs: []string{sh}}, "/etc/shadow", policy.Read, true},
		{policy.Subject{Programs: []string{pg}}, pg, policy.Modify, false},
		{policy.Subject{Programs: []string{sh}}, pg, policy.Exec, true},
	} {
		if v := policy.Decide(layers, c.s, c.path, c.k); v.Allowed != c.want {
			t.Errorf("%v %s %s: %v", c.s, c.k, c.path, v.Allowed)
		}
	}
}

// The rules of the first pattern that matches hold, nothing of the others; those
// without a pattern are for whoever none matches.
func TestBomfatherContainers(t *testing.T) {
	p := one(t, `policies:
  - executable: "filepath = /bin/base"
    can_access_dirs: ["/data:write"]
  - executable: "filepath = /bin/web | container = shop:*:web"
    can_access_dirs: ["/srv:read"]
  - executable: "filepath = /bin/any | container = shop:*:*"
    can_access_dirs: ["/srv:write"]
attributes:
  - path: "type = filepath | filepath = /etc | container = shop:*:web"
    global_read_only: true
flags: {security_level: block, block_in_memory_exec: true}
`)
	subject := func(exe string) policy.Subject { return policy.Subject{Programs: []string{exe}} }
	for _, c := range []struct {
		where policy.Container
		s     policy.Subject
		path  string
		k     policy.Kind
		want  bool
	}{
		{policy.Container{}, subject("/bin/base"), "/data/x", policy.Modify, true},
		{policy.Container{}, subject("/bin/sh"), "/data/x", policy.Read, false},
		{policy.Container{}, subject("/bin/sh"), "/srv/x", policy.Read, true},
		{policy.Container{}, subject("/bin/sh"), "/dev/shm/x", policy.Exec, false},
		{policy.Container{Namespace: "shop", Pod: "p-1", Name: "web"}, subject("/bin/web"), "/srv/x", policy.Read, true},
		{policy.Container{Namespace: "shop", Pod: "p-1", Name: "web"}, subject("/bin/any"), "/srv/x", policy.Read, false},
		{policy.Container{Namespace: "shop", Pod: "p-1", Name: "web"}, subject("/bin/sh"), "/data/x", policy.Read, true},
		{policy.Container{Namespace: "shop", Pod: "p-1", Name: "web"}, subject("/bin/sh"), "/etc/x", policy.Modify, false},
		{policy.Container{Namespace: "shop", Pod: "p-1", Name: "web"}, subject("/bin/sh"), "/dev/shm/x", policy.Exec, false},
		{policy.Container{Namespace: "shop", Pod: "p-1", Name: "db"}, subject("/bin/any"), "/srv/x", policy.Modify, true},
		{policy.Container{Namespace: "shop", Pod: "p-1", Name: "db"}, subject("/bin/sh"), "/etc/x", policy.Modify, true},
		{policy.Container{Namespace: "other", Pod: "p-1", Name: "web"}, subject("/bin/sh"), "/data/x", policy.Read, false},
	} {
		if v := policy.Decide(p.For(c.where), c.s, c.path, c.k); v.Allowed != c.want {
			t.Errorf("%+v: %v %s %s: %v", c.where, c.s, c.k, c.path, v.Allowed)
		}
	}
	text := policy.Convert(p)
	back, diags := policy.ParseFile("back.yaml", text)
	if len(back) != 3 || !strings.HasPrefix(back[1].Name, "t-") || back[1].Name == back[2].Name || len(back[1].Rules) != len(p.Variants[0].Policy.Rules) {
		t.Errorf("converted to %d policies: %v\n%s", len(back), diags, text)
	}
}

// Bomfather knows of containers that have an orchestrator's names only: no
// pattern matches another one.
func TestNamelessContainerHasNoVariant(t *testing.T) {
	p := one(t, "policies: [{executable: \"filepath = /bin/p | container = *:*:*\", can_access_dirs: [\"/data:read\"]}]")
	for where, want := range map[policy.Container]bool{
		{}: true, {Name: "web"}: true, {Namespace: "n", Pod: "p"}: true, {Namespace: "n", Pod: "p", Name: "c"}: false,
	} {
		if got := policy.Decide(p.For(where), policy.Subject{}, "/data", policy.Read).Allowed; got != want {
			t.Errorf("%+v: %v", where, got)
		}
	}
	for text, ok := range map[string]bool{"": true, "a:b:c": true, "a:b": false, "a::c": false, "a:b:c:d": false} {
		if c, err := policy.ParseContainer(text); (err == nil) != ok || ok && text != "" && c.Pod != "b" {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
	}
}

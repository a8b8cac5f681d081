package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// A path is judged whole however deep it is, up to the limit; beyond it is
// denied. Names of any bytes are names.
func TestNames(t *testing.T) {
	writePolicy(t, "names", native("names", `  default: allow
  rules:
  - {effect: deny, paths: ["/tmp/**/closed", "/tmp/*.key"], access: [read]}
`))
	id := start(t, "runc", "names", nil)
	deep := func(depth int, name string) string {
		// One component at a time, by a relative path: the whole is over what a
		// system call takes.
		script := fmt.Sprintf(`rm -rf /tmp/d; mkdir /tmp/d; cd /tmp/d; i=2; while [ $i -lt %d ]; do mkdir d; cd d; i=$((i+1)); done; echo content > %s; cat %s`, depth, name, name)
		out, _ := in(t, "runc", id, "/bin/sh", "-c", script)
		return out
	}
	for _, c := range []struct {
		depth int
		name  string
		want  string
	}{
		{21, "open", "content"}, {65, "open", "content"}, {257, "open", "content"},
		{21, "closed", "Permission denied"}, {65, "closed", "Permission denied"}, {257, "closed", "Permission denied"},
		{400, "open", "Permission denied"},
	} {
		if out := deep(c.depth, c.name); !strings.Contains(out, c.want) {
			t.Errorf("%d components, %s: %s", c.depth, c.name, out)
		}
	}
	wantEvent(t, id, func(e event) bool { return e.Reason == "limit" })
	long := strings.Repeat("n", 251) + ".key"
	for _, name := range []string{"a.key", "sp ace.key", "new\nline.key", "\xff\xfe.key", "quo\"te.key", "*.key", long} {
		in(t, "runc", id, "/bin/sh", "-c", "rm -rf /tmp/d; echo content > \"$0\"", "/tmp/"+name)
		if out, _ := in(t, "runc", id, "/bin/cat", "/tmp/"+name); !strings.Contains(out, "Permission denied") {
			t.Errorf("%q: %s", name, out)
		}
		if out, _ := in(t, "runc", id, "/bin/mv", "/tmp/"+name, "/tmp/plain"); !strings.Contains(out, "Permission denied") {
			t.Errorf("%q moved to where it can be read: %s", name, out)
		}
	}
}

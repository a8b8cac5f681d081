package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// The last directory's own rule holds at every depth, also from the second open
// on, when the cache answers: the first levels of a path are walked in another
// way than the deeper ones.
func TestDeep(t *testing.T) {
	const deepest = 14
	var denied, allowed []string
	mount := filepath.Join(work, "deep") // a tmpfs: the cache takes nothing of the VM's own root
	t.Cleanup(func() { os.RemoveAll(mount) })
	for depth := 2; depth <= deepest; depth++ {
		dir := strings.Repeat("/d", depth-1)
		for name, list := range map[string]*[]string{"closed": &denied, "open": &allowed} {
			at := filepath.Join(dir, name)
			*list = append(*list, filepath.Join("/m", at))
			if err := os.MkdirAll(mount+at, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(mount+at, "file"), []byte("x\n"), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	quoted := func(list []string) string { return `["` + strings.Join(list, `", "`) + `"]` }
	writePolicy(t, "deep-deny", native("deep-deny", "  default: allow\n  rules:\n  - {effect: deny, paths: "+quoted(denied)+", access: [read]}\n"))
	writePolicy(t, "deep-allow", native("deep-allow", "  default: {read: deny, write: allow, exec: allow}\n  rules:\n"+
		"  - {effect: allow, paths: [\"/bin\", \"/proc\", \"/dev\", \"/etc\", \"/sys\"], access: [read]}\n"+
		"  - {effect: allow, paths: "+quoted(allowed)+", access: [read]}\n"))
	for _, policy := range []string{"deep-deny", "deep-allow"} {
		t.Run(policy, func(t *testing.T) {
			id := start(t, "runc", policy, func(s *specs.Spec) {
				s.Mounts = append(s.Mounts, specs.Mount{Destination: "/m", Type: "bind", Source: mount, Options: []string{"rbind", "rw"}})
			})
			// One process: only a label that has walked since its exec asks the cache.
			var files []string
			for range 3 {
				for i := range denied {
					files = append(files, denied[i]+"/file", allowed[i]+"/file")
				}
			}
			out, _ := in(t, "runc", id, "/bin/sh", "-c", "exec cat "+strings.Join(files, " ")+" 2>&1")
			answers := strings.Split(strings.TrimSpace(out), "\n")
			if len(answers) != len(files) {
				t.Fatalf("%d answers to %d questions: %s", len(answers), len(files), out)
			}
			for i, got := range answers {
				want := "x"
				if i%2 == 0 {
					want = "Permission denied"
				}
				if !strings.HasSuffix(got, want) {
					t.Errorf("round %d, %s: %q, want %q", 1+i/(2*len(denied)), files[i], got, want)
				}
			}
		})
	}
}

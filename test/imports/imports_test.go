// Package imports proves the architecture's direction of imports and what the
// hook may be made of. Nothing imports it.
package imports

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dunnage-project/dunnage/"

// list returns package paths with their direct or all dependencies.
func list(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// Each folder imports only the folders named here.
func TestDirection(t *testing.T) {
	may := map[string][]string{
		"policy":            {},
		"bpf":               {"policy"},
		"hook/wire":         {},
		"hook":              {"hook/wire"},
		"daemon":            {"bpf", "policy", "hook/wire"},
		"policy/policytest": {"policy"},
	}
	for pkg, allowed := range may {
		for _, dep := range list(t, "-f", `{{join .Imports "\n"}}`, module+pkg) {
			if own, ok := strings.CutPrefix(dep, module); ok && !slices.Contains(allowed, own) {
				t.Errorf("%s imports %s", pkg, own)
			}
			if strings.HasPrefix(dep, "github.com/cilium/ebpf") && pkg != "bpf" {
				t.Errorf("%s imports %s: only bpf may", pkg, dep)
			}
		}
	}
	for _, line := range list(t, "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...") {
		fields := strings.Fields(line)
		for _, dep := range fields[1:] {
			if own, ok := strings.CutPrefix(dep, module); ok && (own == "daemon" || own == "hook" || strings.HasPrefix(own, "test")) {
				t.Errorf("%s imports %s, which nobody may", fields[0], own)
			}
		}
	}
}

// The hook is small, static, and free of what it does not need.
func TestHook(t *testing.T) {
	for _, dep := range list(t, "-deps", module+"hook") {
		for _, banned := range []string{"github.com/cilium/ebpf", "github.com/containerd", "github.com/sirupsen", "net/http", "github.com/spf13", "net"} {
			if dep == banned || strings.HasPrefix(dep, banned+"/") && banned != "net" {
				t.Errorf("the hook depends on %s", dep)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "hook")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, module+"hook")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st.Size() >= 4<<20 {
		t.Errorf("the hook has %d bytes, 4 MiB are allowed", st.Size())
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if libs, err := f.ImportedLibraries(); err != nil || len(libs) > 0 {
		t.Errorf("the hook is not static: %v %v", libs, err)
	}
}

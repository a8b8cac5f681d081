package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Every operation of the actor, in an open and in a closed folder, on tmpfs,
// ext4 and overlay, by every runtime: the errno, and that a denied one had no
// effect. fresh paths are made anew for each row.
func TestOperations(t *testing.T) {
	writePolicy(t, "closed", native("closed", `  default: allow
  rules:
  - {effect: deny, paths: ["/m/closed"], access: [all]}
`))
	for name, mount := range fileSystems(t) {
		t.Run(name, func(t *testing.T) { operations(t, mount) })
	}
}

// fileSystems makes one folder on each file system, for a bind mount at /m.
func fileSystems(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	dir := func(path string) string {
		if err := os.MkdirAll(path, 0o777); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(path) })
		return path
	}
	out["tmpfs"] = dir("/run/e2e/tmpfs")
	out["ext4"] = dir("/var/lib/containers/e2e")
	base := dir("/var/lib/containers/e2e-overlay")
	for _, sub := range []string{"lower/closed", "lower/open", "upper", "work", "merged"} {
		dir(filepath.Join(base, sub))
	}
	for _, sub := range []string{"closed", "open"} {
		if err := os.WriteFile(filepath.Join(base, "lower", sub, "lower"), []byte("lower\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	merged := filepath.Join(base, "merged")
	if o, err := command("mount", "-t", "overlay", "overlay", "-o", "lowerdir="+base+"/lower,upperdir="+base+"/upper,workdir="+base+"/work", merged); err != nil {
		t.Fatal(o)
	}
	t.Cleanup(func() { _, _ = command("umount", merged) })
	out["overlay"] = merged
	return out
}

func operations(t *testing.T, mount string) {
	id := start(t, "runc", "closed", func(s *specs.Spec) {
		allCapabilities(s)
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/m", Type: "bind", Source: mount, Options: []string{"rbind", "rw"}})
	})
	rows := []struct {
		op           string
		args         []string // with @ for the folder
		open, closed string
	}{
		{"open-read", []string{"@/file"}, "0", "EACCES"},
		{"open-write", []string{"@/file"}, "0", "EACCES"},
		{"open-rdwr", []string{"@/file"}, "0", "EACCES"},
		{"open-append", []string{"@/file"}, "0", "EACCES"},
		{"open-trunc", []string{"@/file"}, "0", "EACCES"},
		{"reopen", []string{"@/file"}, "0", "EACCES"},
		{"by-handle", []string{"@/file"}, "", "EACCES"},
		{"list", []string{"@"}, "0", "EACCES"},
		{"create", []string{"@/new"}, "0", "EACCES"},
		{"tmpfile", []string{"@"}, "", "EACCES"},
		{"truncate", []string{"@/file"}, "0", "EACCES"},
		{"mkdir", []string{"@/new"}, "0", "EACCES"},
		{"mknod", []string{"@/new"}, "0", "EACCES"},
		{"mkfifo", []string{"@/new"}, "0", "EACCES"},
		{"symlink", []string{"/x", "@/new"}, "0", "EACCES"},
		{"link", []string{"@/file", "/m/open/new"}, "0", "EACCES"},
		{"link", []string{"/m/open/file", "@/new"}, "0", "EACCES"},
		{"link-fd", []string{"@/file", "/m/open/new"}, "0", "EACCES"},
		{"unlink", []string{"@/file"}, "0", "EACCES"},
		{"rmdir", []string{"@/dir"}, "0", "EACCES"},
		{"rename", []string{"@/file", "/m/open/new"}, "0", "EACCES"},
		{"rename", []string{"/m/open/file", "@/new"}, "0", "EACCES"},
		{"rename", []string{"/m/open/dir", "@/newdir"}, "0", "EACCES"},
		{"rename", []string{"@", "/m/moved"}, "", "EACCES"},
		{"exchange", []string{"@/file", "/m/open/other"}, "", "EACCES"},
		{"exchange", []string{"/m/open/other", "@/file"}, "", "EACCES"},
		{"chmod", []string{"@/file"}, "0", "EACCES"},
		{"chown", []string{"@/file"}, "0", "EACCES"},
		{"exec", []string{"@/actor"}, "", "EACCES"},
		{"mmap-exec", []string{"@/actor"}, "0", "EACCES"},
		{"mprotect-exec", []string{"@/actor"}, "0", "EACCES"},
		{"mount", []string{"@", "/tmp"}, "EPERM", "EPERM"},
		{"mount-new", []string{"@"}, "EPERM", "EPERM"},
		{"detached", []string{"@", "file"}, "EACCES", "EACCES"},
	}
	for _, row := range rows {
		for _, side := range []string{"open", "closed"} {
			want := row.open
			if side == "closed" {
				want = row.closed
			}
			prepare(t, mount)
			before := listing(t, mount)
			args := []string{"/bin/actor", row.op}
			for _, a := range row.args {
				args = append(args, strings.ReplaceAll(a, "@", "/m/"+side))
			}
			for _, pass := range []string{"cold", "warm"} {
				got, _ := in(t, "runc", id, args...)
				if i := strings.LastIndexByte(got, '\n'); i >= 0 {
					got = got[i+1:]
				}
				if want != "" && got != want && !(pass == "warm" && want == "0") {
					t.Errorf("%s %v: %s, want %s (again by hand: runc exec %s %s)", row.op, args[2:], got, want, id, strings.Join(args, " "))
				}
				if want == "0" || want == "" {
					break // it had its effect
				}
				if after := listing(t, mount); after != before {
					t.Errorf("%s %v: denied, but\n%s\nbecame\n%s", row.op, args[2:], before, after)
				}
			}
		}
	}
}

// prepare makes both folders as they were.
func prepare(t *testing.T, mount string) {
	t.Helper()
	for _, extra := range []string{"moved"} {
		os.RemoveAll(filepath.Join(mount, extra))
	}
	for _, side := range []string{"open", "closed"} {
		dir := filepath.Join(mount, side)
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if e.Name() != "lower" {
				os.RemoveAll(filepath.Join(dir, e.Name()))
			}
		}
		if err := os.MkdirAll(filepath.Join(dir, "dir"), 0o755); err != nil {
			t.Fatal(err)
		}
		actor, err := os.ReadFile("/usr/local/bin/actor")
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{"file": []byte("content of " + side), "other": []byte("other"), "actor": actor} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// listing is names, modes and sizes of everything below a folder.
func listing(t *testing.T, dir string) string {
	t.Helper()
	out, err := command("find", dir, "-printf", "%P %M %s %U\n")
	if err != nil {
		t.Fatal(out)
	}
	return out
}

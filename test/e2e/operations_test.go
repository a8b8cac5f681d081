package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Every operation of the actor, in an open and in a closed folder, on tmpfs,
// ext4 and overlay: the errno, and that a denied one had no effect. Each row has
// folders of its own; the closed ones are tried twice.
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
		args         []string // @ is the row's folder, % another one, always open
		open, closed string
	}{
		{"open-read", []string{"@/file"}, "0", "EACCES"},
		{"open-write", []string{"@/file"}, "0", "EACCES"},
		{"open-rdwr", []string{"@/file"}, "0", "EACCES"},
		{"open-append", []string{"@/file"}, "0", "EACCES"},
		{"open-trunc", []string{"@/file"}, "0", "EACCES"},
		{"reopen", []string{"@/file"}, "0", "EACCES"},
		{"by-handle", []string{"@/file", "/m/open"}, "", "EACCES|ENOTSUP"}, // overlayfs gives no handles
		{"list", []string{"@"}, "0", "EACCES"},
		{"create", []string{"@/new"}, "0", "EACCES"},
		{"tmpfile", []string{"@"}, "", "EACCES|ENOTSUP"}, // nor, in 6.1, nameless files
		{"truncate", []string{"@/file"}, "0", "EACCES"},
		{"mkdir", []string{"@/new"}, "0", "EACCES"},
		{"mknod", []string{"@/new"}, "0", "EACCES"},
		{"mkfifo", []string{"@/new"}, "0", "EACCES"},
		{"symlink", []string{"/x", "@/new"}, "0", "EACCES"},
		{"link", []string{"@/file", "%/new"}, "0", "EACCES"},
		{"link", []string{"%/file", "@/new"}, "0", "EACCES"},
		{"link-fd", []string{"@/file", "%/new"}, "0", "EACCES"},
		{"unlink", []string{"@/file"}, "0", "EACCES"},
		{"rmdir", []string{"@/dir"}, "0", "EACCES"},
		{"rename", []string{"@/file", "%/new"}, "0", "EACCES"},
		{"rename", []string{"%/file", "@/new"}, "0", "EACCES"},
		{"rename", []string{"%/dir", "@/newdir"}, "0", "EACCES"},
		{"rename", []string{"@", "/m/moved"}, "", "EACCES"},
		{"exchange", []string{"@/file", "%/other"}, "", "EACCES"},
		{"exchange", []string{"%/other", "@/file"}, "", "EACCES"},
		{"chmod", []string{"@/file"}, "0", "EACCES"},
		{"chown", []string{"@/file"}, "0", "EACCES"},
		{"setxattr", []string{"@/file"}, "0|ENOTSUP", "EACCES|ENOTSUP"}, // user attributes on tmpfs: from 6.6
		{"removexattr", []string{"@/file"}, "0|ENOTSUP|ENODATA", "EACCES|ENOTSUP"},
		{"setacl", []string{"@/file"}, "0", "EACCES"},
		{"removeacl", []string{"@/file"}, "0", "EACCES"},
		{"chattr", []string{"@/file"}, "0|ENOTTY|EOPNOTSUPP|ENOTSUP", "EACCES"}, // tmpfs: from 6.6
		{"utimes", []string{"@/file"}, "0", "EACCES"},
		{"touch", []string{"@/file"}, "0", "EACCES"},
		{"utimes-fd", []string{"@/file"}, "0", "EACCES"},
		{"exec", []string{"@/actor"}, "", "EACCES"},
		{"mmap-exec", []string{"@/actor"}, "0", "EACCES"},
		{"mprotect-exec", []string{"@/actor"}, "0", "EACCES"},
		{"mount", []string{"@", "/tmp"}, "EPERM", "EPERM"},
		{"mount-new", []string{"@"}, "EPERM", "EPERM"},
		{"detached", []string{"@", "file"}, "EACCES", "EACCES"},
	}
	for _, side := range []string{"open", "closed"} {
		var lines, wants []string
		for i, row := range rows {
			at, other := fmt.Sprintf("/m/%s/r%d", side, i), fmt.Sprintf("/m/open/%s%d", side, i)
			prepare(t, mount, at, other)
			lines = append(lines, row.op+" "+strings.NewReplacer("@", at, "%", other).Replace(strings.Join(row.args, " ")))
			if side == "open" {
				wants = append(wants, row.open)
			} else {
				wants = append(wants, row.closed)
			}
		}
		passes := []string{"once"}
		if side == "closed" {
			passes = []string{"cold", "warm"} // what is denied can be tried again
		}
		before := listing(t, filepath.Join(mount, side))
		for _, pass := range passes {
			cmd := exec.Command("runc", "exec", id, "/bin/actor", "batch")
			cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
			out, err := cmd.Output()
			got := strings.Split(strings.TrimSpace(string(out)), "\n")
			if err != nil || len(got) != len(lines) {
				t.Fatalf("%s: %d answers for %d lines, %v: %s", side, len(got), len(lines), err, out)
			}
			for i, want := range wants {
				if want != "" && !slices.Contains(strings.Split(want, "|"), got[i]) {
					t.Errorf("%s, %s: %s, want %s", pass, lines[i], got[i], want)
				}
			}
		}
		if after := listing(t, filepath.Join(mount, side)); side == "closed" && after != before {
			t.Errorf("denied, but\n%s\nbecame\n%s", before, after)
		}
	}
}

// prepare makes the folders of one row; they are /m/… in the container.
func prepare(t *testing.T, mount string, dirs ...string) {
	t.Helper()
	actor, err := os.ReadFile("/usr/local/bin/actor")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		dir = filepath.Join(mount, strings.TrimPrefix(dir, "/m"))
		if err := os.MkdirAll(filepath.Join(dir, "dir"), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{"file": []byte("content"), "other": []byte("other"), "actor": actor[:65536]} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// listing is names, modes, sizes, owners and times of everything below a folder.
func listing(t *testing.T, dir string) string {
	t.Helper()
	out, err := command("find", dir, "-printf", "%P %M %s %U %T@\n")
	if err != nil {
		t.Fatal(out)
	}
	return out
}

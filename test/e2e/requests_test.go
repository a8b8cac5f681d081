package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Content does not get a new path by a snapshot, which passes none of the hooks
// that names pass; attributes are judged when a request of a descriptor changes
// them, too.
func TestRequests(t *testing.T) {
	writePolicy(t, "closed", native("closed", `  default: allow
  rules:
  - {effect: deny, paths: ["/m/vol/closed"], access: [all]}
  - {effect: deny, paths: ["/m/vol/kept"], access: [attr]}
`))
	dir := filepath.Join(work, "btrfs")
	script := `set -e
mkdir -p $0 && truncate -s 256M $0.image && mkfs.btrfs -q -f $0.image && modprobe -a loop btrfs
mount -o loop $0.image $0
btrfs subvolume create $0/vol >/dev/null
mkdir $0/vol/closed && echo topsecret >$0/vol/closed/secret && echo x >$0/vol/kept && echo x >$0/vol/free`
	if out, err := command("sh", "-c", script, dir); err != nil {
		t.Fatal(out)
	}
	t.Cleanup(func() { _, _ = command("umount", "-l", dir) })
	id := start(t, "runc", "closed", func(s *specs.Spec) {
		allCapabilities(s)
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/m", Type: "bind", Source: dir, Options: []string{"rbind", "rw"}})
	})
	for _, c := range []struct{ op, a, b, want string }{
		{"open-read", "/m/vol/closed/secret", "", "EACCES"},
		{"snapshot", "/m/vol", "/m", "EPERM"},
		{"open-read", "/m/snap/closed/secret", "", "ENOENT"},
		{"chattr", "/m/vol/kept", "", "EACCES"},
		{"chattr", "/m/vol/free", "", "0"},
	} {
		args := []string{"/bin/actor", c.op, c.a}
		if c.b != "" {
			args = append(args, c.b)
		}
		if out, _ := in(t, "runc", id, args...); out != c.want {
			t.Errorf("%v: %s, want %s", args, out, c.want)
		}
	}
	wantEvent(t, id, func(e event) bool { return e.Reason == "frozen" })
	// The same works from outside: the request itself is right.
	if out, err := command("actor", "snapshot", dir+"/vol", dir); err != nil {
		t.Errorf("from outside: %s", out)
	}
	if out, err := command("cat", dir+"/snap/closed/secret"); err != nil || !strings.Contains(out, "topsecret") {
		t.Errorf("the snapshot: %s", out)
	}
}

// A privileged container that sees the host's bpf file system can't take the
// enforcement's pinned objects away.
func TestPinnedObjects(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	id := start(t, "runc", "secret", func(s *specs.Spec) {
		allCapabilities(s)
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/m", Type: "bind", Source: "/sys/fs/bpf", Options: []string{"rbind", "rw"}})
	})
	const link = "/dunnage/v1/link_file_open"
	for _, args := range [][]string{{"unlink", "/m" + link}, {"rename", "/m" + link, "/m/away"}} {
		if out, _ := in(t, "runc", id, append([]string{"/bin/actor"}, args...)...); out != "EPERM" {
			t.Errorf("%v: %s", args, out)
		}
	}
	if _, err := os.Stat("/sys/fs/bpf" + link); err != nil {
		t.Error(err)
	}
	if out, _ := in(t, "runc", id, "/bin/cat", "/secret"); !strings.Contains(out, "Permission denied") {
		t.Errorf("afterwards: %s", out)
	}
	wantEvent(t, id, func(e event) bool { return e.Reason == "guard" })
}

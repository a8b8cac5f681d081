package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/bpf"
)

// The safety net reports, once, a container that should be bound and is not;
// not one that is bound, or needs no policy, or a pid that is another's by now.
func TestSafetyNet(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("makes mount namespaces: needs root")
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Skip("may not make mount namespaces:", err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	f := newFixture(t)
	var got []report
	dir := t.TempDir()
	net := newSafetyNet(f.registry, func(r report) { got = append(got, r) })
	net.pidFiles, net.configs = []string{dir + "/run/*/userdata/pidfile"}, []string{dir + "/lib/%s/userdata"}
	put := func(id, annotations string, pid int) string {
		path := filepath.Join(dir, "run", id, "userdata", "pidfile")
		write(t, path, fmt.Sprint(pid))
		write(t, filepath.Join(dir, "lib", id, "userdata", "config.json"), `{"annotations":{`+annotations+`}}`)
		return path
	}
	asks := `"io.dunnage.policy":"one"`
	put("c1", asks, cmd.Process.Pid)
	put("plain", "", cmd.Process.Pid)
	put("host", asks, os.Getpid())
	put("gone", asks, 1<<22+1)
	stale := put("stale", asks, cmd.Process.Pid)
	if err := unix.Utimes(stale, []unix.Timeval{{Sec: 1}, {Sec: 1}}); err != nil {
		t.Fatal(err)
	}
	net.look()
	net.look()
	if len(got) != 1 || got[0].Container != "c1" || got[0].Verdict != "unconfined" {
		t.Fatalf("%+v", got)
	}
	f.config = testConfig(t, "baseline: [one]\n")
	net.look()
	if len(got) != 2 || got[1].Container != "plain" {
		t.Fatalf("with a baseline: %+v", got)
	}
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/mnt", cmd.Process.Pid), &st); err != nil {
		t.Fatal(err)
	}
	q := ask("c1", 0, "one")
	q.namespace = bpf.NamespaceID(st.Ino) // as the fake kernel has it
	if _, err := f.bind(q); err != nil {
		t.Fatal(err)
	}
	net.reported = map[string]bool{}
	net.look()
	if len(got) != 2 {
		t.Errorf("bound, and yet: %+v", got)
	}
}

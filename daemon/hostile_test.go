package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// TestHintFrom is run as another process: it sends a hint to a socket and prints the
// answer's code.
func TestHintFrom(t *testing.T) {
	path := os.Getenv("DUNNAGE_HINT")
	if path == "" {
		return // it is not one of the processes that TestContainedCaller starts
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = wire.Send(fd, wire.Request{Version: wire.Version, Op: wire.OpEnded, ID: "x"})
	}
	data, _, rerr := wire.Receive(fd)
	var r wire.Reply
	if err = errors.Join(err, rerr, wire.Decode(data, &r)); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("code=%s\n", r.Code)
}

// Root of a container is no root here, whatever its uid, and who is in a mount
// namespace that has a policy is nobody.
func TestContainedCaller(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to make namespaces")
	}
	f := newFixture(t)
	path := filepath.Join(t.TempDir(), "hook.sock")
	l, err := listenHook(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go f.serveHook(ctx, l)
	from := func(flags uintptr) string {
		cmd := exec.Command("/proc/self/exe", "-test.run", "^TestHintFrom$", "-test.v")
		cmd.Env = append(os.Environ(), "DUNNAGE_HINT="+path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, code, _ := strings.Cut(string(out), "code=")
		code, _, _ = strings.Cut(code, "\n")
		return code
	}
	if code := from(0); code != string(wire.OK) {
		t.Errorf("the host's root: %s", code)
	}
	if code := from(unix.CLONE_NEWNS); code != string(wire.OK) {
		t.Errorf("a runtime in a mount namespace of its own: %s", code)
	}
	if code := from(unix.CLONE_NEWPID); code != string(wire.Refused) {
		t.Errorf("root in a container: %s", code)
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/mnt", &st); err != nil {
		t.Fatal(err)
	}
	if _, err := f.bind(ask("c1", int(st.Ino), "one")); err != nil {
		t.Fatal(err)
	}
	if code := from(0); code != string(wire.Refused) {
		t.Errorf("a task in a bound namespace: %s", code)
	}
}

// Only what the kernel calls a pidfd and a mount namespace is touched; the rest
// may answer slowly, or never.
func TestDescriptorsAreWhatTheyAreCalled(t *testing.T) {
	dir := t.TempDir()
	named := filepath.Join(dir, "mnt:[4026531840]")
	if err := os.WriteFile(named, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(path string) int {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	memfd, err := unix.MemfdCreate("mnt:[1]", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memfd)
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	mnt := open("/proc/self/ns/mnt")
	for name, c := range map[string][2]int{
		"a file of that name": {pidfd, open(named)}, "a memfd of that name": {pidfd, memfd}, "another namespace": {pidfd, open("/proc/self/ns/net")},
		"a folder": {open(dir), mnt}, "swapped": {mnt, pidfd}, "twice the namespace": {mnt, mnt},
	} {
		if _, err := checkNamespace(c[0], c[1], 0); codeOf(err) != wire.BadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !isA(pidfd, "anon_inode:[pidfd]", "pidfd:[") || !isA(mnt, "mnt:[") {
		t.Error("the real ones are not known")
	}
}

// What goes to logs and terminals can't give them orders.
func TestTextsOfCallers(t *testing.T) {
	for id, want := range map[string]bool{"c1": true, strings.Repeat("a", 64): true, "a_b.c-d+e:f": true,
		"": false, "a b": false, "a/b": false, "a\nb": false, "\x1b]0;x\a": false, "ä": false, "\xff": false, strings.Repeat("a", maxID+1): false} {
		if (checkID(id) == nil) != want {
			t.Errorf("%q: %v", id, checkID(id))
		}
	}
	for text, want := range map[string]string{"web-1 ä": "web-1 ä", "a\x1b[2Jb\r\u202e\u009b": "a?[2Jb???", strings.Repeat("x", 5000): strings.Repeat("x", 1000) + "…"} {
		if got := printable(text); got != want {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// A user who calls his container what root's is called does not become it.
func TestNamesOfOthers(t *testing.T) {
	f := newFixture(t)
	bind := func(id, name string, ns int, uid uint32) *container {
		q := ask(id, ns, "one")
		q.name, q.UID = name, uid
		c, err := f.bind(q)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	root := bind("aaaaaaaa", "pg", 1, 0)
	bind("aaaaaaaa", "pg", 2, 1000)
	bind("bbbbbbbb", "aaaaaaaa", 3, 1000)
	for range 20 { // maps are walked in any order
		if c, err := f.find("aaaaaaaa"); err != nil || c != root {
			t.Fatalf("by id: %+v, %v", c, err)
		}
		if c, err := f.find("pg"); err == nil {
			t.Fatalf("two have the name: %+v", c)
		}
	}
	if c, err := f.find("bbbb"); err != nil || c.Name != "aaaaaaaa" {
		t.Errorf("by prefix: %v", err)
	}
}

// A FIFO, a folder and an endless file are errors, at once.
func TestReadBounded(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for _, file := range []string{fifo, dir, "/dev/zero", "/dev/null", filepath.Join(dir, "none")} {
		if data, err := readBounded(file, 10); err == nil {
			t.Errorf("%s: %q", file, data)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readBounded(file, 9); err == nil {
		t.Error("more than the most")
	}
	if data, err := readBounded(file, 10); err != nil || len(data) != 10 {
		t.Errorf("%q, %v", data, err)
	}
	if took := time.Since(start); took > time.Second {
		t.Errorf("it took %v", took)
	}
}

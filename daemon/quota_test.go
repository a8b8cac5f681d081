package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// A user can't take all connections: not with one uid, and not with many.
func TestCallersAreBounded(t *testing.T) {
	var c callers
	taken := 0
	for uid := uint32(1000); uid < 2000; uid++ {
		for range 2 * connectionsOfOne {
			if c.admit(uid) {
				taken++
			}
		}
		if uid == 1000 && taken != connectionsOfOne {
			t.Errorf("one uid took %d connections", taken)
		}
	}
	if taken != connectionsOfOthers || taken >= maxConnections {
		t.Errorf("%d connections taken, of %d", taken, maxConnections)
	}
	if !c.admit(0) {
		t.Error("root is turned away")
	}
	c.leave(0)
	for range connectionsOfOne {
		c.leave(1000)
	}
	if !c.admit(1000) || c.admit(1001) {
		t.Error("what was given back is not there, or too much of it")
	}
}

// Nor all container rows: root's containers and other users' still start.
func TestContainersAreBounded(t *testing.T) {
	f := newFixture(t)
	f.kernel.rows = 4 * containersOfOne
	refused := func(err error) bool { var r refusal; return errors.As(err, &r) && r.code == wire.Full }
	ns := 0
	start := func(uid uint32) error {
		ns++
		q := ask(fmt.Sprintf("c%d", ns), ns, "one")
		q.UID, q.pidfd = uid, -1
		_, err := f.bind(q)
		return err
	}
	for i := range containersOfOne {
		if err := start(1000); err != nil {
			t.Fatalf("container %d: %v", i, err)
		}
	}
	if err := start(1000); !refused(err) {
		t.Errorf("one more than one user may have: %v", err)
	}
	for i := range containersOfOne {
		if err := start(2000 + uint32(i)); err != nil {
			t.Fatalf("other user's container %d: %v", i, err)
		}
	}
	if err := start(5000); !refused(err) {
		t.Errorf("one more than all users may have: %v", err)
	}
	if err := start(0); err != nil {
		t.Errorf("root's: %v", err)
	}
	// A restart does not forget whose they are.
	f.registry = f.open(t)
	if err := f.adopt(); err != nil {
		t.Fatal(err)
	}
	if err := start(1000); !refused(err) {
		t.Errorf("after a restart: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.containers {
		if c.Asked.UID == 1000 {
			f.forget(c)
			break
		}
	}
	if len(f.containers) != 2*containersOfOne || f.mayHold(1000) != nil {
		t.Errorf("%d containers, %v: what has ended still counts", len(f.containers), f.mayHold(1000))
	}
}

// An idle user is refused more, and root is served meanwhile.
func TestIdleUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to be another user")
	}
	f := newFixture(t)
	dir, err := os.MkdirTemp("/tmp", "quota")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "hook.sock")
	l, err := listenHook(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go f.serveHook(ctx, l)
	dial := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		if err != nil {
			t.Error(err)
		}
		return fd
	}
	const over = 10
	idle := make(chan []int)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			t.Error(errno)
		}
		var fds []int
		for range connectionsOfOne + over {
			fds = append(fds, dial())
		}
		idle <- fds
	}()
	fds := <-idle
	fd := dial()
	defer unix.Close(fd)
	start := time.Now()
	if err := unix.Sendmsg(fd, []byte(`{"version":1,"op":"ended","id":"x","pid":0}`), nil, nil, 0); err != nil {
		t.Fatal(err)
	}
	data, _, err := wire.Receive(fd)
	var r wire.Reply
	if err != nil || wire.Decode(data, &r) != nil || r.Code != wire.OK {
		t.Errorf("root: %q, %v", data, err)
	}
	if took := time.Since(start); took > connectionTime/2 {
		t.Errorf("root waited %v", took)
	}
	full := 0
	for _, fd := range fds {
		_ = wire.SetDeadline(fd, 50*time.Millisecond)
		if data, _, err := wire.Receive(fd); err == nil && wire.Decode(data, &r) == nil && r.Code == wire.Full {
			full++
		}
		unix.Close(fd)
	}
	if full != over {
		t.Errorf("%d connections refused, want %d", full, over)
	}
}

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/hook/wire"
)

const hookSocket = "/run/dunnage/hook.sock"

// hostileEnv makes the test's binary the hostile caller: see hostile.
const hostileEnv = "DUNNAGE_HOSTILE"

// send sends one message and returns the code of the answer, or the error.
func send(data []byte, fds ...int) string {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: hookSocket}); err != nil {
		return err.Error()
	}
	_ = wire.SetDeadline(fd, 10*time.Second)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if err := unix.Sendmsg(fd, data, oob, nil, unix.MSG_NOSIGNAL); err != nil {
		return err.Error()
	}
	answer, extra, err := wire.Receive(fd)
	for _, fd := range extra {
		unix.Close(fd)
	}
	var r wire.Reply
	if err != nil || wire.Decode(answer, &r) != nil {
		return fmt.Sprintf("%q %v", answer, err)
	}
	return string(r.Code)
}

func bindMessage(id string) []byte {
	return fmt.Appendf(nil, `{"version":1,"op":"bind","id":%q,"pid":1,"annotations":{"io.dunnage.policy":"secret"}}`, id)
}

// bindOf asks for a process with its own descriptors.
func bindOf(pid int, id string) string {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err.Error()
	}
	defer unix.Close(pidfd)
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	defer unix.Close(ns)
	return send(bindMessage(id), pidfd, ns)
}

// hostile is the caller in another process: it binds a child of its own.
func hostile() {
	child := exec.Command("/bin/sleep", "20")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if os.Getuid() != 0 {
		child.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
	}
	if err := child.Start(); err != nil {
		fmt.Println("child:", err)
		return
	}
	fmt.Println("own child:", bindOf(child.Process.Pid, "hostile-own"))
	_ = child.Process.Kill()
	_ = child.Wait()
}

// sleeper is a process in a mount namespace of its own, of root.
func sleeper(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// asUser runs f on a thread whose ids are a user's.
func asUser(t *testing.T, f func() string) string {
	t.Helper()
	got := make(chan string)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 1234, 1234, 1234); errno != 0 {
			got <- errno.Error()
			return
		}
		got <- f()
	}()
	return <-got
}

// Hostile callers bind nothing and leave nothing, and a container starts in
// bounded time in between. About 20 s of VM time.
func TestHostileCallers(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	good := bundle(t, "secret", nil, "/bin/cat", "/public")
	served := func(when string) {
		t.Helper()
		start := time.Now()
		if _, out, status := runOnce(t, "crun", good); status != 0 || time.Since(start) > 10*time.Second {
			t.Errorf("%s: a container started with %d after %v: %s", when, status, time.Since(start), out)
		}
	}
	served("before")
	descriptors := func() int {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", daemonPID(t)))
		return len(entries)
	}
	rows := func() string { out, _ := command("dunnage", "ps"); return out }
	quiet := func() (int, string) {
		time.Sleep(time.Second) // what has ended is reaped within 250 ms
		return descriptors(), rows()
	}
	beforeFDs, beforeRows := quiet()

	open := func(pid int) (pidfd, ns int) {
		pidfd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		ns, err = unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(pidfd); unix.Close(ns) })
		return pidfd, ns
	}
	one, two, gone := sleeper(t), sleeper(t), sleeper(t)
	onePid, oneNS := open(one.Process.Pid)
	_, twoNS := open(two.Process.Pid)
	gonePid, goneNS := open(gone.Process.Pid)
	selfPid, selfNS := open(os.Getpid())
	daemonFD, daemonNS := open(daemonPID(t))
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(null)
	_ = gone.Process.Kill()
	_ = gone.Wait()
	msg := bindMessage("hostile")
	for _, c := range []struct {
		name string
		user bool
		data []byte
		fds  []int
		want string
	}{
		{"another's container", true, msg, []int{onePid, oneNS}, "refused"},
		{"the host's namespace", true, msg, []int{selfPid, selfNS}, "namespace"},
		{"the host's, as root", false, msg, []int{selfPid, selfNS}, "namespace"},
		{"the daemon's", false, msg, []int{daemonFD, daemonNS}, "namespace"},
		{"a pid that is gone", false, msg, []int{gonePid, goneNS}, "bad-request"},
		{"a pid that is gone, another's namespace", false, msg, []int{gonePid, oneNS}, "bad-request"},
		{"pidfd and namespace disagree", false, msg, []int{onePid, twoNS}, "bad-request"},
		{"no pidfd", false, msg, []int{null, oneNS}, "bad-request"},
		{"no namespace", false, msg, []int{onePid, null}, "bad-request"},
		{"swapped", false, msg, []int{oneNS, onePid}, "bad-request"},
		{"no descriptor", true, msg, nil, "bad-request"},
		{"one descriptor", true, msg, []int{onePid}, "bad-request"},
		{"three", true, msg, []int{onePid, oneNS, oneNS}, "bad-request"},
		{"two hundred", true, msg, slices.Repeat([]int{null}, 200), "bad-request"},
		{"giant", true, []byte(strings.Repeat("x", wire.MaxMessage+1)), nil, "bad-request"},
		{"truncated", true, msg[:len(msg)/2], []int{onePid, oneNS}, "bad-request"},
		{"an id for a terminal", false, bindMessage("\x1b[2J"), []int{onePid, oneNS}, "bad-request"},
	} {
		f := func() string { return send(c.data, c.fds...) }
		got := ""
		if c.user {
			got = asUser(t, f)
		} else {
			got = f()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}

	// A live container can't be bound again or let go by others.
	live := start(t, "crun", "secret", nil)
	out, err := command("crun", "state", live)
	if err != nil {
		t.Fatal(out)
	}
	pid := 0
	if _, after, ok := strings.Cut(out, `"pid":`); ok {
		_, _ = fmt.Sscan(strings.Trim(strings.SplitN(after, ",", 2)[0], " \n"), &pid)
	}
	livePid, liveNS := open(pid)
	if got := send(bindMessage("other"), livePid, liveNS); got != "namespace" {
		t.Errorf("a live container is bound again: %s", got)
	}
	ended := fmt.Appendf(nil, `{"version":1,"op":"ended","id":%q,"pid":%d}`, live, pid)
	for _, got := range []string{send(ended), asUser(t, func() string { return send(ended) })} {
		if got != "ok" {
			t.Errorf("a hint: %s", got)
		}
	}
	if out, _ := in(t, "crun", live, "/bin/cat", "/secret"); !strings.Contains(out, "denied") || !strings.Contains(rows(), live) {
		t.Errorf("a hint let a live container go: %s", out)
	}
	_, _ = command("crun", "delete", "-f", live)

	// Root of a container that has the socket, with all that root can have.
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "rootfs/bin/hostile"), self, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(filepath.Join(work, "rootfs/bin/hostile"))
	for _, policy := range []string{"", "secret"} {
		b := bundle(t, policy, func(s *specs.Spec) {
			allCapabilities(s)
			s.Process.Env = append(s.Process.Env, hostileEnv+"=1", "DUNNAGE_VM=1")
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/run/dunnage", Type: "bind", Source: "/run/dunnage", Options: []string{"rbind"}})
		}, "/bin/hostile")
		if _, out, _ := runOnce(t, "crun", b); !strings.Contains(out, "own child: refused") {
			t.Errorf("from a container with policy %q: %s", policy, out)
		}
	}

	// Thousands of connections, most refused, none saying anything.
	idle := make(chan []int)
	go asUser(t, func() string {
		var fds []int
		for range 3000 {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				break
			}
			fds = append(fds, fd)
			_ = unix.Connect(fd, &unix.SockaddrUnix{Name: hookSocket})
		}
		idle <- fds
		return ""
	})
	fds := <-idle
	if len(fds) < 500 {
		t.Errorf("only %d connections", len(fds))
	}
	served("among idle connections")
	for _, fd := range fds {
		unix.Close(fd)
	}
	time.Sleep(2500 * time.Millisecond) // a silent one is given up after two
	if afterFDs, afterRows := quiet(); afterFDs > beforeFDs+1 || afterRows != beforeRows {
		t.Errorf("%d descriptors, %d before; rows:\n%s\nbefore:\n%s", afterFDs, beforeFDs, afterRows, beforeRows)
	}
	served("after")
}

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// orders is what a child does when it is told to go on.
type orders struct {
	Landlock []string // directories that may be read
	AppArmor string   // profile to change to at the exec
	Argv     []string
	Denied   bool // what it opens must be denied
	User     int  // 0: stays root
	CPU      int  // to run on, counted from 1; 0: any
}

// process is a child that waits, in a mount namespace of its own with root as
// its root, to be told what to execute: a container in all that matters here.
type process struct {
	cmd    *exec.Cmd
	orders io.WriteCloser
	out    *bufio.Reader
}

// startChild starts one. On the host it shares the namespace and is chrooted.
func startChild(root string, host bool) (*process, error) {
	mode := "container"
	p := &process{}
	if host {
		mode = "host"
	}
	p.cmd = exec.Command("/proc/self/exe", "child", mode, root)
	p.cmd.Stderr = os.Stderr
	if !host {
		p.cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.orders, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("the child says %q: %w", line, err), p.cmd.Wait())
	}
	return p, nil
}

// run tells the child what to execute and returns what that prints.
func (p *process) run(o orders) ([]byte, error) {
	if err := json.NewEncoder(p.orders).Encode(o); err != nil {
		return nil, err
	}
	p.orders.Close()
	out, err := io.ReadAll(p.out)
	if err := errors.Join(err, p.cmd.Wait()); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(o.Argv, " "), err, out)
	}
	return out, nil
}

// child is the other side.
func child(args []string) error {
	runtime.LockOSThread() // Landlock, and a profile at exec, are a thread's
	if len(args) != 2 {
		return errors.New("child: want MODE ROOT")
	}
	root := args[1]
	// Of /proc as it is now; the new root has another one, or none.
	profile, err := os.OpenFile("/proc/thread-self/attr/apparmor/exec", os.O_WRONLY, 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if args[0] == "host" {
		err = unix.Chroot(root)
	} else {
		err = errors.Join(
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(root, root, "", unix.MS_BIND|unix.MS_REC, ""),
			unix.Chdir(root),
			unix.PivotRoot(".", "."),
			unix.Unmount(".", unix.MNT_DETACH),
		)
	}
	if err := errors.Join(err, unix.Chdir("/")); err != nil {
		return fmt.Errorf("entering %s: %w", root, err)
	}
	fmt.Println("ready")
	var o orders
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return err
	}
	if len(o.Landlock) > 0 {
		if err := landlock(o.Landlock); err != nil {
			return fmt.Errorf("Landlock: %w", err)
		}
	}
	if o.AppArmor != "" {
		if _, err := profile.WriteString("exec " + o.AppArmor); err != nil {
			return fmt.Errorf("AppArmor: %w", err)
		}
	}
	if o.CPU != 0 {
		var set unix.CPUSet
		set.Set(o.CPU - 1)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return err
		}
	}
	if o.User != 0 {
		if err := errors.Join(unix.Setgroups(nil), unix.Setresgid(o.User, o.User, o.User), unix.Setresuid(o.User, o.User, o.User)); err != nil {
			return err
		}
	}
	env := []string{"GODEBUG=asyncpreemptoff=1", "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/tmp", "LC_ALL=C"}
	return unix.Exec(o.Argv[0], o.Argv, env)
}

// landlock lets this thread read below dirs, and execute /bench, only.
func landlock(dirs []string) error {
	const read = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	const all = read | unix.LANDLOCK_ACCESS_FS_EXECUTE
	attr := unix.LandlockRulesetAttr{Handled_access_fs: all}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), 8, 0)
	if errno != 0 {
		return errno
	}
	add := func(path string, access uint64) error {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		defer unix.Close(fd)
		rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
		if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, set, unix.LANDLOCK_RULE_PATH_BENEATH,
			uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
			return fmt.Errorf("%s: %w", path, errno)
		}
		return nil
	}
	if err := add("/bench", unix.LANDLOCK_ACCESS_FS_READ_FILE|unix.LANDLOCK_ACCESS_FS_EXECUTE); err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := add(dir, read); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return errno
	}
	return nil
}

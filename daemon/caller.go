package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// ioctls of nsfs, include/uapi/linux/nsfs.h.
const (
	nsGetUserNS   = 0xb701
	nsGetNSType   = 0xb703
	nsGetOwnerUID = 0xb704
)

// vmRuntimes are programs whose containers do not run in the namespace that the
// hook is told: binding it would confine nothing.
var vmRuntimes = []string{"runsc", "runsc-sandbox", "qemu-system-x86_64", "cloud-hypervisor", "firecracker", "kata-agent"}

// checkNamespace makes sure that a pidfd and a namespace descriptor that came
// over the socket belong together, that the namespace may be bound at all, and
// that the caller may bind it. It returns the init's pid.
func checkNamespace(pidfd, nsfd int, uid uint32) (pid int, err error) {
	// By what the kernel calls them, before anything is done with them: an ioctl or
	// a stat of a file of the caller's (FUSE) would be the caller's to answer.
	if !isA(nsfd, "mnt:[") {
		return 0, refuse(wire.BadRequest, "the second descriptor is not a mount namespace")
	}
	if !isA(pidfd, "anon_inode:[pidfd]", "pidfd:[") {
		return 0, refuse(wire.BadRequest, "the first descriptor is not a pidfd")
	}
	kind, err := unix.IoctlRetInt(nsfd, nsGetNSType)
	if err != nil || kind != unix.CLONE_NEWNS {
		return 0, refuse(wire.BadRequest, "the second descriptor is not a mount namespace")
	}
	if pid, err = pidOf(pidfd); err != nil {
		return 0, refuse(wire.BadRequest, "the container's init: %v", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(nsfd, &st); err != nil {
		return 0, refuse(wire.BadRequest, "the mount namespace: %v", err)
	}
	if !sameNamespace(&st, fmt.Sprintf("/proc/%d/ns/mnt", pid)) || !alive(pidfd) {
		return 0, refuse(wire.BadRequest, "the init (pid %d) is not in the namespace given, or has ended", pid)
	}
	for path, whose := range map[string]string{"/proc/1/ns/mnt": "the host's", "/proc/self/ns/mnt": "the daemon's"} {
		if sameNamespace(&st, path) {
			return 0, refuse(wire.BadNamespace, "the container has no mount namespace of its own (it is in %s): give it one", whose)
		}
	}
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && slices.Contains(vmRuntimes, filepath.Base(exe)) {
		return 0, refuse(wire.BadNamespace, "unsupported runtime: %s keeps the container's files out of this kernel's sight", exe)
	}
	if uid == 0 {
		return pid, nil
	}
	owner, err := ownerOf(nsfd)
	if err != nil || owner != uid {
		return 0, refuse(wire.Refused, "user %d does not own the container's user namespace", uid)
	}
	return pid, nil
}

// isA reports whether the kernel's own name of a descriptor begins with one of
// these. The names of files begin with a slash.
func isA(fd int, names ...string) bool {
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return err == nil && slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(link, name) })
}

// checkCaller refuses who is in a container and has got hold of the socket: a
// task in a mount namespace that has a policy, and root in a pid namespace other
// than the daemon's, since a container's root is root by its uid, too. A runtime
// and its hook are in neither.
func (r *registry) checkCaller(conn int, cred *unix.Ucred) error {
	pidfd, err := unix.GetsockoptInt(conn, unix.SOL_SOCKET, soPeerPidfd)
	if err != nil { // before 6.5; there a caller that has ended may be taken for another
		if pidfd, err = unix.PidfdOpen(int(cred.Pid), 0); err != nil {
			return refuse(wire.Refused, "the caller, pid %d, has ended or is out of sight: %v", cred.Pid, err)
		}
	}
	defer closeFD(pidfd)
	var own, its unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/self/ns/pid", &own), unix.Stat(fmt.Sprintf("/proc/%d/ns/pid", cred.Pid), &its)); err != nil {
		return refuse(wire.Refused, "the caller, pid %d: %v", cred.Pid, err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", cred.Pid))
	if err != nil {
		return refuse(wire.Refused, "the caller, pid %d: %v", cred.Pid, err)
	}
	defer f.Close()
	ns, err := r.kernel.NamespaceID(int(f.Fd()))
	switch {
	case err != nil:
		return err
	case !alive(pidfd):
		return refuse(wire.Refused, "the caller, pid %d, has ended", cred.Pid)
	case cred.Uid == 0 && (own.Ino != its.Ino || own.Dev != its.Dev):
		return refuse(wire.Refused, "the caller is root of another pid namespace: a container's root binds nothing")
	case r.boundNamespaces()[ns]:
		return refuse(wire.Refused, "the caller is in a container with a policy: it binds nothing")
	}
	return nil
}

// soPeerPidfd is SO_PEERPIDFD, include/uapi/asm-generic/socket.h.
const soPeerPidfd = 77

// maxID is the size of the longest container id, in bytes. Runtimes' are 64.
const maxID = 1024

// checkID refuses what no runtime takes for an id: it goes into logs, lists and
// other people's terminals.
func checkID(id string) error {
	if id == "" || len(id) > maxID || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' || c == '/' }) {
		return refuse(wire.BadRequest, "%.100q can't be a container's id", id)
	}
	return nil
}

// printable is a text of a caller's as it can be logged: visible, and not too long.
func printable(text string) string {
	const most = 1000
	if len(text) > most {
		text = text[:most] + "…"
	}
	return visible(text)
}

// visible is a text on one line, without what a terminal would obey: containers
// choose what their programs are called.
func visible(text string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, text)
}

// pidOf is the pid behind a pidfd, in the daemon's pid namespace.
func pidOf(pidfd int) (int, error) {
	f, err := os.Open(fmt.Sprintf("/proc/self/fdinfo/%d", pidfd))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "Pid:"); ok {
			pid, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				return 0, err
			}
			if pid <= 0 {
				return 0, fmt.Errorf("it has ended, or the daemon's pid namespace does not show it")
			}
			return pid, nil
		}
	}
	return 0, fmt.Errorf("the first descriptor is not a pidfd")
}

func sameNamespace(st *unix.Stat_t, path string) bool {
	var other unix.Stat_t
	return unix.Stat(path, &other) == nil && other.Ino == st.Ino && other.Dev == st.Dev
}

// alive reports whether the process of a pidfd has not ended.
func alive(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 0
}

// ownerOf is the user who made the user namespace that owns a namespace.
func ownerOf(nsfd int) (uint32, error) {
	user, err := unix.IoctlRetInt(nsfd, nsGetUserNS)
	if err != nil {
		return 0, err
	}
	defer unix.Close(user)
	return unix.IoctlGetUint32(user, nsGetOwnerUID)
}

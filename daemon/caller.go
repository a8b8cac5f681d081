package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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

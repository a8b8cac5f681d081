package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// operations are what the actor can do. The arguments are paths.
var operations = map[string]func(a []string) error{
	"open-read":   func(a []string) error { return open(a[0], unix.O_RDONLY) },
	"open-write":  func(a []string) error { return open(a[0], unix.O_WRONLY) },
	"open-rdwr":   func(a []string) error { return open(a[0], unix.O_RDWR) },
	"open-append": func(a []string) error { return open(a[0], unix.O_WRONLY|unix.O_APPEND) },
	"open-trunc":  func(a []string) error { return open(a[0], unix.O_RDONLY|unix.O_TRUNC) },
	"create":      func(a []string) error { return open(a[0], unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL) },
	"tmpfile":     func(a []string) error { return open(a[0], unix.O_RDWR|unix.O_TMPFILE) },
	"list": func(a []string) error {
		fd, err := unix.Open(a[0], unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	},
	"truncate": func(a []string) error { return unix.Truncate(a[0], 1) },
	"mkdir":    func(a []string) error { return unix.Mkdir(a[0], 0o755) },
	"mknod":    func(a []string) error { return unix.Mknod(a[0], unix.S_IFREG|0o644, 0) },
	"mkfifo":   func(a []string) error { return unix.Mknod(a[0], unix.S_IFIFO|0o644, 0) },
	"symlink":  func(a []string) error { return unix.Symlink(a[0], a[1]) },
	"link":     func(a []string) error { return unix.Link(a[0], a[1]) },
	"link-fd": func(a []string) error {
		fd, err := unix.Open(a[0], unix.O_PATH, 0)
		if err != nil {
			return err
		}
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, a[1], unix.AT_SYMLINK_FOLLOW)
	},
	"unlink": func(a []string) error { return unix.Unlink(a[0]) },
	"rmdir":  func(a []string) error { return unix.Rmdir(a[0]) },
	"rename": func(a []string) error { return unix.Rename(a[0], a[1]) },
	"exchange": func(a []string) error {
		return unix.Renameat2(unix.AT_FDCWD, a[0], unix.AT_FDCWD, a[1], unix.RENAME_EXCHANGE)
	},
	"chmod":       func(a []string) error { return unix.Chmod(a[0], 0o644) },
	"chown":       func(a []string) error { return unix.Chown(a[0], 0, 0) },
	"setxattr":    func(a []string) error { return unix.Setxattr(a[0], "user.actor", []byte("x"), 0) },
	"removexattr": func(a []string) error { return unix.Removexattr(a[0], "user.kept") },
	"setacl":      func(a []string) error { return unix.Setxattr(a[0], "system.posix_acl_access", acl, 0) },
	"removeacl":   func(a []string) error { return unix.Removexattr(a[0], "system.posix_acl_access") },
	"chattr": func(a []string) error { // FS_IOC_SETFLAGS with "no dump", by a descriptor for reading
		fd, err := unix.Open(a[0], unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, 0x40)
	},
	"snapshot": func(a []string) error { // of the btrfs subvolume a[0], as a[1]/snap
		from, err := unix.Open(a[0], unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		to, err := unix.Open(a[1], unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		var args [4096]byte // struct btrfs_ioctl_vol_args: descriptor, name
		binary.LittleEndian.PutUint64(args[:], uint64(from))
		copy(args[8:], "snap")
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(to), 0x50009401, uintptr(unsafe.Pointer(&args[0]))); errno != 0 {
			return errno
		}
		return nil
	},
	"utimes": func(a []string) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, a[0], []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0)
	},
	"touch": func(a []string) error { return unix.UtimesNanoAt(unix.AT_FDCWD, a[0], nil, 0) },
	"utimes-fd": func(a []string) error { // by a descriptor that gives no right on the file
		fd, err := unix.Open(a[0], unix.O_PATH, 0)
		if err != nil {
			return err
		}
		return unix.UtimesNanoAt(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), []unix.Timespec{{Sec: 1}, {Sec: 1}}, 0)
	},
	"exec": func(a []string) error {
		return unix.Exec(a[0], a, nil) // prints nothing of its own if it works
	},
	"mmap-exec": func(a []string) error {
		fd, err := unix.Open(a[0], unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		_, err = unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
		return err
	},
	"mprotect-exec": func(a []string) error {
		fd, err := unix.Open(a[0], unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		b, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			return err
		}
		return unix.Mprotect(b, unix.PROT_READ|unix.PROT_EXEC)
	},
	"reopen": func(a []string) error { // O_PATH first, then by /proc
		fd, err := unix.Open(a[0], unix.O_PATH, 0)
		if err != nil {
			return err
		}
		return open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDONLY)
	},
	"memfd-exec": func([]string) error {
		fd, err := unix.MemfdCreate("program", 0)
		if err != nil {
			return err
		}
		self, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			return err
		}
		if _, err := unix.Write(fd, self); err != nil {
			return err
		}
		return unix.Exec(fmt.Sprintf("/proc/self/fd/%d", fd), []string{"actor", "mkdir", "/tmp/never"}, nil)
	},
	"mount":     func(a []string) error { return unix.Mount(a[0], a[1], "", unix.MS_BIND, "") },
	"mount-new": func(a []string) error { return unix.Mount("none", a[0], "tmpfs", 0, "") },
	"unshared": func(a []string) error { // an own mount namespace, then read
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		return open(a[0], unix.O_RDONLY)
	},
	"detached": func(a []string) error { // through a detached copy of the tree
		tree, err := unix.OpenTree(unix.AT_FDCWD, a[0], unix.OPEN_TREE_CLONE)
		if err != nil {
			return err
		}
		fd, err := unix.Openat(tree, a[1], unix.O_RDONLY, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	},
	"bench": func(a []string) error { // opens the file 20,000 times: nanoseconds an open and close
		const rounds = 20_000
		var from, to unix.Timespec
		for i := range 2 * rounds {
			if i == rounds {
				if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &from); err != nil {
					return err
				}
			}
			if fd, err := unix.Open(a[0], unix.O_RDONLY, 0); err == nil {
				unix.Close(fd)
			}
		}
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &to); err != nil {
			return err
		}
		fmt.Println("ns", (to.Nano()-from.Nano())/rounds)
		return nil
	},
	"chrooted": func(a []string) error { // /x seen as / by chroot
		if err := unix.Chroot(a[0]); err != nil {
			return err
		}
		return open(a[1], unix.O_RDONLY)
	},
	"by-handle": func(a []string) error {
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, a[0], 0)
		if err != nil {
			return err
		}
		dir, err := unix.Open(a[1], unix.O_RDONLY, 0) // anything on the same mount
		if err != nil {
			return err
		}
		fd, err := unix.OpenByHandleAt(dir, h, unix.O_RDONLY)
		if err == nil {
			unix.Close(fd)
		}
		return err
	},
}

// acl says rw-r--r-- with an entry for user 1: version 2, then (tag, permissions, id)
// for the owner, the user, the group, the mask and others.
var acl = []byte{2, 0, 0, 0,
	1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 1, 0, 0, 0, 4, 0, 4, 0, 255, 255, 255, 255,
	16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255}

func open(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(unix.Close(fd))
}

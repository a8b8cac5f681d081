package coherence

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hand is a thread that does operations. Its working directory and root are its
// own; goroutines that use one are locked to its thread.
type hand struct {
	base    string // where the container's root is, as the thread sees it: "", or "/old" after pivot_root
	outside bool   // on the host: paths are translated
	slots   [4]int // held descriptors, -1: none
	mounts  map[int]string
	others  []string // in /proc: tasks in other namespaces whose paths the kernel part knows
	moved   bool     // mounts may have changed since mounts was read
}

func newHand() *hand { return &hand{slots: [4]int{-1, -1, -1, -1}, moved: true} }

const (
	hostDir   = "/var/lib/containers/coherence"
	hostRoot  = hostDir + "/ext4/root" // not an ext4's own root, which is not cached below from 6.10 on
	hostBtrfs = hostDir + "/btrfs"
	scratch   = "/scratch" // in the container: what overlays need
)

// at is where the thread finds a path of the program.
func (h *hand) at(path string) string {
	switch {
	case !h.outside:
		return h.base + path
	case strings.HasPrefix(path, "/w"):
		return hostRoot + path
	case strings.HasPrefix(path, "/b"):
		return hostBtrfs + strings.TrimPrefix(path, "/b")
	}
	return "/nonexistent"
}

// change does an operation that is not a probe. What fails, fails: the state of
// the file system is asked for afterwards, not assumed.
func (h *hand) change(o op) error {
	h.moved = h.moved || moving[o.verb]
	var a, b string
	if len(o.args) > 0 {
		a = h.at(o.args[0])
	}
	if len(o.args) > 1 {
		b = h.at(o.args[1])
	}
	switch o.verb {
	case "mkdir":
		return unix.Mkdir(a, 0o755)
	case "mk":
		return unix.Mknod(a, unix.S_IFREG|0o644, 0)
	case "write":
		return closing(unix.Open(a, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o644))
	case "unlink":
		return unix.Unlink(a)
	case "rmdir":
		return unix.Rmdir(a)
	case "chmod":
		return unix.Chmod(a, 0o755)
	case "plant":
		return plant(a)
	case "deep":
		if err := os.MkdirAll(a, 0o755); err != nil {
			return err
		}
		for ; len(a) > 2; a = filepath.Dir(a) { // each directory of the chain has a file
			_ = unix.Mknod(a+"/x", unix.S_IFREG|0o644, 0)
		}
		return nil
	case "clear":
		return os.RemoveAll(a)
	case "reuse":
		return reuse(a, b)
	case "rename":
		return unix.Rename(a, b)
	case "exchange":
		return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	case "link":
		return unix.Link(a, b)
	case "symlink":
		return unix.Symlink(o.args[0], b)
	case "bind":
		return unix.Mount(a, b, "", unix.MS_BIND, "")
	case "move":
		return unix.Mount(a, b, "", unix.MS_MOVE, "")
	case "tmpfs":
		return unix.Mount("tmpfs", a, "tmpfs", 0, "")
	case "overlay":
		return h.overlay(a, b)
	case "umount":
		return unix.Unmount(a, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	case "calm":
		return h.calm()
	case "unshare":
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	case "pivot":
		return h.pivot()
	case "drop":
		return os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0)
	case "snapshot":
		return snapshot(a, b)
	case "unsnapshot":
		return unsnapshot(a)
	case "hold":
		return h.hold(o.args[0], h.at(o.args[1]))
	case "chdir":
		return unix.Chdir(a)
	}
	return unix.EINVAL
}

// moving are the verbs that may change where mounts are.
var moving = map[string]bool{"rename": true, "exchange": true, "rmdir": true, "clear": true, "reuse": true, "bind": true, "move": true, "tmpfs": true,
	"overlay": true, "umount": true, "calm": true, "unshare": true, "pivot": true, "unsnapshot": true}

func closing(fd int, err error) error {
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// plant makes what is missing of a tree: a, b, three levels deep, with x and y.
func plant(dir string) error {
	level := []string{dir}
	for depth := 0; ; depth++ {
		var next []string
		for _, d := range level {
			_ = unix.Mkdir(d, 0o755)
			for _, name := range []string{"x", "y"} {
				_ = unix.Mknod(d+"/"+name, unix.S_IFREG|0o644, 0)
			}
			next = append(next, d+"/a", d+"/b")
		}
		if level = next; depth == 2 {
			return nil
		}
	}
}

// overlay mounts one whose upper layer is on a file system of its own that is
// not mounted anywhere then, as it is with a runtime's.
func (h *hand) overlay(lower, at string) error {
	layers := h.base + scratch
	if err := unix.Mount("tmpfs", layers, "tmpfs", 0, ""); err != nil {
		return err
	}
	defer unix.Unmount(layers, unix.MNT_DETACH) //nolint:errcheck // what is left shows in later answers
	for _, dir := range []string{"/upper", "/work"} {
		if err := unix.Mkdir(layers+dir, 0o755); err != nil {
			return err
		}
	}
	return unix.Mount("overlay", at, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lower, layers, layers))
}

// reuse removes a directory and makes another one, which is to get its inode's
// number and memory: that is freed after a grace period, and given out first.
func reuse(from, to string) error {
	for _, name := range []string{"/x", "/y"} {
		_ = unix.Unlink(from + name)
	}
	if err := unix.Rmdir(from); err != nil {
		return err
	}
	for range 2 { // membarrier(MEMBARRIER_CMD_GLOBAL) waits for a grace period
		if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, 1, 0, 0); errno != 0 {
			return errno
		}
	}
	if err := unix.Mkdir(to, 0o755); err != nil {
		return err
	}
	_ = unix.Mknod(to+"/x", unix.S_IFREG|0o644, 0)
	return unix.Mknod(to+"/y", unix.S_IFREG|0o644, 0)
}

// calm takes away what programs have mounted, so that mounts do not pile up.
func (h *hand) calm() error {
	mounts, err := readMounts("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	for _, at := range mounts {
		for _, top := range tops {
			if strings.HasPrefix(at, top+"/") {
				_ = unix.Unmount(at, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			}
		}
	}
	return nil
}

// pivot puts an empty tmpfs where the root is, and the root under it; or back.
func (h *hand) pivot() error {
	if h.base != "" {
		if err := unix.PivotRoot("/old", "/old/pivot"); err != nil {
			return err
		}
		h.base = ""
		return unix.Unmount("/pivot", unix.MNT_DETACH)
	}
	if err := unix.Mount("tmpfs", "/pivot", "tmpfs", 0, ""); err != nil {
		return err
	}
	if err := unix.Mkdir("/pivot/old", 0o755); err != nil {
		return err
	}
	if err := unix.PivotRoot("/pivot", "/pivot/old"); err != nil {
		return err
	}
	h.base = "/old"
	return nil
}

func (h *hand) hold(slot, path string) error {
	i, err := strconv.Atoi(slot)
	if err != nil || i < 0 || i >= len(h.slots) {
		return unix.EINVAL
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if h.slots[i] >= 0 {
		unix.Close(h.slots[i])
	}
	h.slots[i] = fd
	return nil
}

// BTRFS_IOC_SNAP_CREATE_V2 and _SNAP_DESTROY, with their argument: a snapshot has
// the inode numbers and generations of what it was taken of.
const (
	snapCreateV2 = 0x50009417
	snapDestroy  = 0x5000940f
	subvolCreate = 0x5000940e
)

func snapshot(from, to string) error {
	src, err := unix.Open(from, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	var arg [4096]byte // fd; transid; flags; unused[4]; name
	*(*int64)(unsafe.Pointer(&arg[0])) = int64(src)
	copy(arg[56:], filepath.Base(to))
	return btrfs(snapCreateV2, filepath.Dir(to), &arg)
}

func unsnapshot(path string) error {
	var arg [4096]byte // fd; name
	copy(arg[8:], filepath.Base(path))
	return btrfs(snapDestroy, filepath.Dir(path), &arg)
}

func subvolume(path string) error {
	var arg [4096]byte
	copy(arg[8:], filepath.Base(path))
	return btrfs(subvolCreate, filepath.Dir(path), &arg)
}

func btrfs(request uintptr, dir string, arg *[4096]byte) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
		return errno
	}
	return nil
}

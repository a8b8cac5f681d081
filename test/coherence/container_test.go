package coherence

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const hookPath = "/usr/libexec/dunnage/dunnage-hook"

// container is a confined process in a mount namespace of its own, bound by the
// product's hook before its first exec, as a runtime would do it; and the two
// unconfined hands that work beside it.
type container struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
	host   *thread // h: in its namespace
	out2   *thread // x: on the host
	policy int
	moved  bool // mounts, since the last batch
}

// makeHost makes the file systems that the containers' trees are on.
func makeHost() error {
	// A journal of its own: without one ext4 does not give an inode's number out
	// again for a minute.
	script := "cd " + hostDir + " && mkdir ext4 && modprobe loop && modprobe btrfs && truncate -s 128M ext4.image" +
		" && mkfs.ext4 -q ext4.image && mount -o loop ext4.image ext4"
	if err := os.MkdirAll(hostDir, 0o755); err != nil {
		return err
	}
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("making an ext4: %w: %s", err, out)
	}
	for _, dir := range []string{"bin", "w", "t", "o", "b", "proc", "scratch", "pivot"} {
		if err := os.MkdirAll(filepath.Join(hostRoot, dir), 0o755); err != nil {
			return err
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if err := os.WriteFile(hostRoot+"/bin/actor", self, 0o755); err != nil {
		return err
	}
	image := hostDir + "/btrfs.image"
	script = "truncate -s 256M " + image + " && mkfs.btrfs -q -f " + image + " && mkdir -p " + hostBtrfs +
		" && mount -o loop " + image + " " + hostBtrfs
	if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil {
		return fmt.Errorf("making a btrfs: %w: %s", err, out)
	}
	return nil
}

// cleanHost empties the trees that outlive a container.
func cleanHost() error {
	if err := os.RemoveAll(hostRoot + "/w"); err != nil {
		return err
	}
	for _, name := range []string{"a/a", "b/b", "b/a", "s"} {
		_ = unsnapshot(hostBtrfs + "/" + name) // most are not there
	}
	entries, err := os.ReadDir(hostBtrfs)
	if err != nil {
		return err
	}
	for _, e := range entries {
		removeTree(hostBtrfs + "/" + e.Name())
	}
	if err := os.Mkdir(hostRoot+"/w", 0o755); err != nil {
		return err
	}
	if err := subvolume(hostBtrfs + "/s"); err != nil {
		return fmt.Errorf("a subvolume: %w", err)
	}
	return plant(hostBtrfs + "/s")
}

// removeTree removes a tree with subvolumes in it.
func removeTree(dir string) {
	if unix.Unlink(dir) == nil || unsnapshot(dir) == nil {
		return
	}
	entries, _ := os.ReadDir(dir) //nolint:errcheck // what is left shows later
	for _, e := range entries {
		removeTree(dir + "/" + e.Name())
	}
	_ = unix.Rmdir(dir)
}

// initContainer is the first process of a container, before its first exec.
func initContainer() error {
	root := hostRoot
	for _, m := range []struct {
		from, to, kind string
		flags          uintptr
		data           string
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		{root, root, "", unix.MS_BIND, ""},
		{"tmpfs", root + "/t", "tmpfs", 0, ""},
		{"tmpfs", root + scratch, "tmpfs", 0, ""},
		{hostBtrfs, root + "/b", "", unix.MS_BIND, ""},
		{"proc", root + "/proc", "proc", 0, ""},
	} {
		if err := unix.Mount(m.from, m.to, m.kind, m.flags, m.data); err != nil {
			return fmt.Errorf("mounting %s: %w", m.to, err)
		}
	}
	for _, dir := range []string{"l", "u", "k"} {
		if err := unix.Mkdir(root+scratch+"/"+dir, 0o755); err != nil {
			return err
		}
	}
	if err := plant(root + scratch + "/l"); err != nil {
		return err
	}
	data := strings.ReplaceAll("lowerdir=S/l,upperdir=S/u,workdir=S/k", "S", root+scratch)
	if err := unix.Mount("overlay", root+"/o", "overlay", 0, data); err != nil {
		return fmt.Errorf("mounting an overlay: %w", err)
	}
	if err := unix.Unmount(root+scratch, unix.MNT_DETACH); err != nil {
		return err
	}
	if err := unix.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return err
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return err
	}
	fmt.Println("ready")
	var b [1]byte
	if _, err := os.Stdin.Read(b[:]); err != nil {
		return err
	}
	return unix.Exec("/bin/actor", []string{"actor"}, []string{roleVariable + "=actor", "GOMAXPROCS=4"})
}

// containers counts those of this run.
var containers int

// startContainer starts one with clean trees; shared is descriptor 3 in it, or nil.
func startContainer(policy int, shared *os.File) (_ *container, err error) {
	if err := cleanHost(); err != nil {
		return nil, err
	}
	containers++
	c := &container{policy: policy}
	c.cmd = exec.Command("/proc/self/exe")
	c.cmd.Env = append(os.Environ(), roleVariable+"=init")
	c.cmd.Stderr = &c.stderr
	c.cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if shared != nil {
		c.cmd.ExtraFiles = []*os.File{shared}
	}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReaderSize(out, 1<<16)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w %s", err, c.stop())
		}
	}()
	if line, err := c.out.ReadString('\n'); line != "ready\n" {
		return nil, fmt.Errorf("the container's init: %q %v", line, err)
	}
	if err := c.bind(); err != nil {
		return nil, err
	}
	if c.host, err = c.join(); err != nil {
		return nil, err
	}
	if c.out2, err = newThread(nil); err != nil {
		return nil, err
	}
	c.out2.hand.outside = true
	if _, err := io.WriteString(c.in, "g"); err != nil {
		return nil, err
	}
	return c, c.tell(0)
}

// join is an unconfined thread in the container's namespace.
func (c *container) join() (*thread, error) {
	return newThread(func() error {
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", c.cmd.Process.Pid))
		if err != nil {
			return err
		}
		defer ns.Close()
		return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNS)
	})
}

// bind has the product's hook bind the namespace.
func (c *container) bind() error {
	state, err := json.Marshal(specs.State{Version: specs.Version, ID: fmt.Sprintf("coherence%d", containers), Status: specs.StateCreating,
		Pid: c.cmd.Process.Pid, Bundle: "/", Annotations: map[string]string{"io.dunnage.policy": policyName(c.policy)}})
	if err != nil {
		return err
	}
	hook := exec.Command(hookPath, "createRuntime")
	hook.Stdin = bytes.NewReader(state)
	if out, err := hook.CombinedOutput(); err != nil {
		return fmt.Errorf("the hook: %w: %s", err, out)
	}
	return nil
}

// tell tells the confined process which version of its policy is in force.
func (c *container) tell(version int) error {
	_, err := fmt.Fprintf(c.in, "policy %s\n", strconv.Quote(policyText(c.policy, version)))
	return err
}

// batch has the confined process do operations.
func (c *container) batch(ops []op) (t tally, wrong string, err error) {
	var b strings.Builder
	if c.moved {
		b.WriteString("moved\n")
		c.moved = false
	}
	for _, o := range ops {
		b.WriteString(o.String())
		b.WriteByte('\n')
	}
	b.WriteString(".\n")
	if _, err := io.WriteString(c.in, b.String()); err != nil {
		return t, "", err
	}
	line, err := c.out.ReadString('\n')
	if err != nil {
		return t, "", fmt.Errorf("the confined process ended: %w %s", err, c.stop())
	}
	_, err = fmt.Sscanf(line, "%d %d %d %d %q", &t.done, &t.allowed, &t.denied, &t.foreign, &wrong)
	return t, wrong, err
}

// stop ends the container and returns what it wrote to standard error.
func (c *container) stop() string {
	c.in.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	for _, t := range []*thread{c.host, c.out2} {
		if t != nil {
			t.end()
		}
	}
	return c.stderr.String()
}

// Package e2e tests the whole line in a VM: a real runtime, the real hook, the
// real daemon, the real kernel. The tests run inside (test/tiers starts them
// there); anywhere else they skip. Nothing imports it.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const (
	hookPath    = "/usr/libexec/dunnage/dunnage-hook"
	policiesDir = "/etc/dunnage/policies.d"
	work        = "/run/e2e"
)

var runtimes = []string{"runc", "crun"}

func TestMain(m *testing.M) {
	if os.Getenv("DUNNAGE_VM") == "" {
		fmt.Println("SKIP: the whole line needs a kernel that enforces: test/tiers runs it in the VM")
		return
	}
	if os.Getenv(hostileEnv) != "" {
		hostile()
		return
	}
	if err := makeRoot(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// makeRoot makes the containers' root file system.
func makeRoot() error {
	root := filepath.Join(work, "rootfs")
	for _, dir := range []string{"bin", "proc", "sys", "dev", "tmp", "etc", "run", "data/sub", "open"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for from, to := range map[string]string{"/usr/bin/busybox": "bin/busybox", "/usr/local/bin/actor": "bin/actor"} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, to), data, 0o755); err != nil {
			return err
		}
	}
	for _, applet := range []string{"sh", "cat", "ls", "echo", "sleep", "mv", "ln", "cp", "touch", "true", "rm", "unshare", "mkdir"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
			return err
		}
	}
	for path, text := range map[string]string{"secret": "topsecret\n", "public": "public\n", "data/file": "inside\n", "data/sub/deep": "deep\n",
		"open/file": "open\n", "etc/passwd": "root:x:0:0::/:/bin/sh\n", "etc/group": "root:x:0:\n"} {
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// write puts a policy into the policies folder and tells the daemon.
func writePolicy(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(policiesDir, name+".yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(filepath.Join(policiesDir, name+".yaml")) })
	// A container of the test before may not be reaped yet: its policy is gone.
	var out string
	var err error
	for range 40 {
		if out, err = command("dunnage", "reload"); err == nil {
			return
		}
		time.Sleep(250 * time.Millisecond)
	}
	t.Fatalf("reload: %s", out)
}

// native is a policy file with rules.
func native(name, spec string) string {
	return "apiVersion: dunnage.io/v1\nkind: Policy\nmetadata: {name: " + name + "}\nspec:\n" + spec
}

const secretSpec = `  default: allow
  rules:
  - {effect: deny, paths: ["/secret"], access: [read, write]}
`

func command(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// bundle makes a bundle whose process runs args; change may alter its config.
func bundle(t *testing.T, policy string, change func(*specs.Spec), args ...string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := command("runc", "spec", "--bundle", dir); err != nil {
		t.Fatalf("runc spec: %s", out)
	}
	path := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var s specs.Spec
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	s.Process.Terminal = false
	s.Process.Args = args
	s.Process.Env = []string{"PATH=/bin"}
	s.Root.Path, s.Root.Readonly = filepath.Join(work, "rootfs"), false
	if policy != "" {
		timeout := 5
		s.Annotations = map[string]string{"io.dunnage.policy": policy}
		s.Hooks = &specs.Hooks{CreateRuntime: []specs.Hook{{Path: hookPath, Args: []string{"dunnage-hook", "createRuntime"}, Timeout: &timeout}}}
	}
	if change != nil {
		change(&s)
	}
	if data, err = json.Marshal(&s); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// counter numbers the containers of this run.
var counter int

// runOnce runs a container to its end and returns its output and status.
func runOnce(t *testing.T, runtime, bundle string) (id, out string, status int) {
	t.Helper()
	counter++
	id = fmt.Sprintf("c%d", counter)
	out, err := command(runtime, "run", "--bundle", bundle, id)
	return id, out, statusOf(t, err)
}

func statusOf(t *testing.T, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatal(err)
	return -1
}

// start starts a container that runs until the test ends.
func start(t *testing.T, runtime, policy string, change func(*specs.Spec)) string {
	t.Helper()
	counter++
	id := fmt.Sprintf("c%d", counter)
	b := bundle(t, policy, change, "/bin/sleep", "1000")
	// The container keeps what it gets as standard output: a file, not a pipe
	// for whose end one would wait.
	log, err := os.Create(filepath.Join(b, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(runtime, "run", "-d", "--bundle", b, id)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		t.Fatalf("%s run: %v %s", runtime, err, text)
	}
	t.Cleanup(func() { _, _ = command(runtime, "delete", "-f", id) })
	return id
}

// in runs a program in a container and returns its output and status.
func in(t *testing.T, runtime, id string, args ...string) (string, int) {
	t.Helper()
	out, err := command(runtime, append([]string{"exec", id}, args...)...)
	return strings.TrimSpace(out), statusOf(t, err)
}

// event is what the tests look at of an event.
type event struct {
	ID                                                                     uint64
	Container, Executable, Access, Path, Verdict, Reason, Policy, Rule, Op string
}

func events(t *testing.T) []event {
	t.Helper()
	out, err := command("dunnage", "events", "-o", "json")
	if err != nil {
		t.Fatalf("dunnage events: %s", out)
	}
	var all []event
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
		var e event
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// wantEvent waits for an event of a container that fits.
func wantEvent(t *testing.T, id string, fits func(event) bool) event {
	t.Helper()
	for range 50 {
		for _, e := range events(t) {
			if e.Container == id && fits(e) {
				return e
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("no such event of %s", id)
	return event{}
}

// daemon is the running daemon of the VM, found by its lock.
func daemonPID(t *testing.T) int {
	t.Helper()
	out, err := command("pidof", "dunnage")
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.Fields(out)[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func killDaemon(t *testing.T, sig unix.Signal) {
	t.Helper()
	pid := daemonPID(t)
	if pid == 0 {
		t.Fatal("no daemon")
	}
	if err := unix.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
	if sig == unix.SIGSTOP || sig == unix.SIGCONT {
		return
	}
	for range 100 {
		if unix.Kill(pid, 0) != nil || isZombie(pid) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the daemon does not end")
}

func isZombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || bytes.Contains(data, []byte(") Z "))
}

// startDaemon starts it and waits until it answers.
func startDaemon(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile("/run/dunnage.log", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("dunnage", "daemon")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go cmd.Wait() //nolint:errcheck // only so that it leaves no zombie
	for range 300 {
		if _, err := command("dunnage", "ps"); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("the daemon does not become ready")
}

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/hook/wire"
	"github.com/dunnage-project/dunnage/policy"
)

// fakeKernel holds what the real one would.
type fakeKernel struct {
	rows     int // 0: 4,096
	next     uint64
	tables   map[bpf.Table]int
	digests  map[[32]byte]bpf.Table
	bindings map[bpf.Instance]bpf.Binding
	tasks    map[bpf.Instance]int
	full     error
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{tables: map[bpf.Table]int{}, digests: map[[32]byte]bpf.Table{}, bindings: map[bpf.Instance]bpf.Binding{}, tasks: map[bpf.Instance]int{}}
}

func (k *fakeKernel) Install(a *policy.Automaton) (bpf.Table, error) {
	if errors.Is(k.full, bpf.ErrHeapFull) {
		return 0, k.full
	}
	t, ok := k.digests[a.Digest]
	if !ok {
		k.next++
		t = bpf.Table(k.next)
		k.digests[a.Digest] = t
	}
	k.tables[t]++
	return t, nil
}

func (k *fakeKernel) Uninstall(t bpf.Table) error {
	if k.tables[t]--; k.tables[t] == 0 {
		delete(k.tables, t)
		for d, other := range k.digests {
			if other == t {
				delete(k.digests, d)
			}
		}
	}
	return nil
}

func (k *fakeKernel) Bind(b bpf.Binding) (bpf.Instance, error) {
	if k.full != nil {
		return 0, k.full
	}
	k.next++
	b.Instance = bpf.Instance(k.next)
	k.bindings[b.Instance] = b
	return b.Instance, nil
}

func (k *fakeKernel) Rebind(i bpf.Instance, t bpf.Table) error {
	b := k.bindings[i]
	b.Table = t
	k.bindings[i] = b
	return nil
}

func (k *fakeKernel) Remove(i bpf.Instance) error { delete(k.bindings, i); return nil }

func (k *fakeKernel) Bindings() (out []bpf.Binding, _ error) {
	for _, b := range k.bindings {
		out = append(out, b)
	}
	return out, nil
}

func (k *fakeKernel) NamespaceID(fd int) (bpf.NamespaceID, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return bpf.NamespaceID(st.Ino), err
}
func (k *fakeKernel) Label(bpf.Instance) (int, error)      { return 0, nil }
func (k *fakeKernel) Tasks() (map[bpf.Instance]int, error) { return k.tasks, nil }
func (k *fakeKernel) ContainerRows() int {
	if k.rows > 0 {
		return k.rows
	}
	return 4096
}
func (k *fakeKernel) CacheOff() string  { return "" }
func (k *fakeKernel) CacheEntries() int { return 0 }
func (k *fakeKernel) CacheCounts(bpf.Instance) (bpf.CacheCounts, error) {
	return bpf.CacheCounts{}, nil
}
func (k *fakeKernel) CacheTotals() bpf.CacheCounts {
	return bpf.CacheCounts{Refused: map[string]uint64{"path": 3}, Stale: map[string]uint64{"mounts": 2}}
}
func (k *fakeKernel) Totals() (bpf.Totals, error) {
	return bpf.Totals{Rows: len(k.bindings), RowsMax: 4096}, nil
}
func (k *fakeKernel) Counts(bpf.Instance) (bpf.Counts, error)           { return bpf.Counts{}, nil }
func (k *fakeKernel) Read(ctx context.Context, _ func(bpf.Event)) error { <-ctx.Done(); return nil }
func (k *fakeKernel) Sweep() error                                      { return nil }
func (k *fakeKernel) Release() error                                    { return nil }
func (k *fakeKernel) Close() error                                      { return nil }

const policyText = `apiVersion: dunnage.io/v1
kind: Policy
metadata: {name: NAME}
spec: {default: allow, rules: [{effect: deny, paths: ["/secret"], access: [read]}]}
`

type fixture struct {
	*registry
	kernel *fakeKernel
	dir    string // of policies
	run    string
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{kernel: newFakeKernel(), dir: t.TempDir(), run: t.TempDir()}
	f.write(t, "one", strings.ReplaceAll(policyText, "NAME", "one"))
	f.write(t, "two", strings.ReplaceAll(policyText, "NAME", "two"))
	f.registry = f.open(t)
	return f
}

func (f *fixture) write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name+".yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) set(t testing.TB) *policy.Set {
	t.Helper()
	set, err := policy.LoadDir(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// open is a new daemon on the same kernel and files.
func (f *fixture) open(t testing.TB) *registry {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	r, err := newRegistry(f.kernel, f.run, emptyConfig(), f.set(t), logrus.NewEntry(log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(r.watch.epoll) })
	return r
}

func ask(id string, ns int, policies ...string) bindRequest {
	return bindRequest{id: id, asked: asked{Names: policies}, namespace: bpf.NamespaceID(ns), pid: os.Getpid(), pidfd: -1, state: bpf.Armed}
}

func codeOf(err error) wire.Code {
	var r refusal
	if errors.As(err, &r) {
		return r.code
	}
	return wire.Internal
}

func TestBind(t *testing.T) {
	f := newFixture(t)
	c, err := f.bind(ask("c1", 1, "one", "two"))
	if err != nil || len(c.Layers) != 2 {
		t.Fatalf("%+v, %v", c, err)
	}
	if again, err := f.bind(ask("c1", 1, "one", "two")); err != nil || again != c {
		t.Errorf("prestart and createRuntime: %v", err)
	}
	if _, err := f.bind(ask("c2", 1, "one")); codeOf(err) != wire.BadNamespace {
		t.Errorf("a shared namespace: %v", err)
	}
	if _, err := f.bind(ask("c3", 3, "oen")); codeOf(err) != wire.UnknownPolicy || !strings.Contains(err.Error(), `did you mean "one"`) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := f.bind(ask("c3", 3)); codeOf(err) != wire.UnknownPolicy {
		t.Errorf("none: %v", err)
	}
	f.write(t, "bad", "apiVersion: dunnage.io/v1\nkind: Policy\nmetadata: {name: bad}\nspec: {}\n")
	f.policies = f.set(t)
	if _, err := f.bind(ask("c3", 3, "bad")); codeOf(err) != wire.InvalidPolicy || !strings.Contains(err.Error(), "bad.yaml:4:") {
		t.Errorf("invalid: %v", err)
	}
	for _, full := range []error{bpf.ErrContainersFull, bpf.ErrHeapFull} {
		f.kernel.full = full
		if _, err := f.bind(ask("c4", 4, "two")); codeOf(err) != wire.Full {
			t.Errorf("full: %v", err)
		}
	}
	if len(f.kernel.bindings) != 1 || len(f.kernel.tables) != 1 {
		t.Errorf("what was refused left something: %v %v", f.kernel.bindings, f.kernel.tables)
	}
}

func TestReloadKeepsWhatAnInvalidEditConcerns(t *testing.T) {
	f := newFixture(t)
	c, err := f.bind(ask("c1", 1, "one"))
	if err != nil {
		t.Fatal(err)
	}
	before := f.kernel.bindings[c.Instance].Table
	f.write(t, "one", "broken: [")
	if err := f.reload(f.set(t)); err == nil || !strings.Contains(err.Error(), "c1 keeps its policy") {
		t.Errorf("not reported: %v", err)
	}
	if f.kernel.bindings[c.Instance].Table != before {
		t.Error("the invalid edit changed the table")
	}
	f.write(t, "one", strings.Replace(strings.ReplaceAll(policyText, "NAME", "one"), "/secret", "/other", 1))
	if err := f.reload(f.set(t)); err != nil {
		t.Fatal(err)
	}
	if f.kernel.bindings[c.Instance].Table == before || len(f.kernel.tables) != 1 {
		t.Errorf("the new policy is not in force, or the old table is still there: %v", f.kernel.tables)
	}
}

// A binding stays until the last task is gone.
func TestReap(t *testing.T) {
	f := newFixture(t)
	c, err := f.bind(ask("c1", 1, "one"))
	if err != nil {
		t.Fatal(err)
	}
	f.kernel.tasks[c.Instance] = 1
	f.initEnded(c.Instance)
	if len(f.kernel.bindings) != 1 {
		t.Fatal("removed while a task lives")
	}
	delete(f.kernel.tasks, c.Instance)
	f.reap()
	if len(f.kernel.bindings) != 0 || len(f.kernel.tables) != 0 || len(f.containers) != 0 {
		t.Error("something is left")
	}
	if files, _ := os.ReadDir(filepath.Join(f.run, "containers")); len(files) != 0 {
		t.Errorf("files are left: %v", files)
	}
}

// A new daemon adopts what the kernel holds, with and without its files.
func TestAdopt(t *testing.T) {
	f := newFixture(t)
	c, err := f.bind(ask("c1", 1, "one"))
	if err != nil {
		t.Fatal(err)
	}
	next := f.open(t)
	if err := next.adopt(); err != nil {
		t.Fatal(err)
	}
	got := next.get(c.Instance)
	if got == nil || got.ID != "c1" || len(got.Layers) != 1 || got.Layers[0].Name != "one" {
		t.Fatalf("adopted %+v", got)
	}
	if v := policy.Decide(got.Layers, policy.Subject{}, "/secret", policy.Read); v.Allowed || v.Rule.Pos.Line != 4 {
		t.Errorf("the adopted layers decide %+v", v)
	}
	if err := os.RemoveAll(filepath.Join(f.run, "containers")); err != nil {
		t.Fatal(err)
	}
	last := f.open(t)
	if err := last.adopt(); err != nil {
		t.Fatal(err)
	}
	if got := last.get(c.Instance); got == nil || got.table != f.kernel.bindings[c.Instance].Table {
		t.Fatalf("adopted without its file: %+v", got)
	}
}

// Who asks, for which namespace.
func TestCheckNamespace(t *testing.T) {
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(self)
	open := func(path string) int {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Skipf("%v: needs root: `make test` runs it", err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	mine := open("/proc/self/ns/mnt")
	for _, c := range []struct {
		name  string
		pidfd int
		ns    int
		want  wire.Code
	}{
		{"the daemon's own", self, mine, wire.BadNamespace},
		{"a pid namespace", self, open("/proc/self/ns/pid"), wire.BadRequest},
		{"not a namespace", self, open("/dev/null"), wire.BadRequest},
		{"not a pidfd", mine, mine, wire.BadRequest},
	} {
		if _, err := checkNamespace(c.pidfd, c.ns, 0); codeOf(err) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	child := exec.Command("unshare", "-m", "sleep", "60")
	if os.Getuid() != 0 || child.Start() != nil {
		t.Skip("needs root to make a namespace: `make test` runs it")
	}
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()
	time.Sleep(300 * time.Millisecond) // until it has unshared
	pidfd, ns, err := openProcess(child.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ns)
	defer unix.Close(pidfd)
	if pid, err := checkNamespace(pidfd, ns, 0); err != nil || pid != child.Process.Pid {
		t.Errorf("a container's: %d, %v", pid, err)
	}
	if _, err := checkNamespace(self, ns, 0); codeOf(err) != wire.BadRequest {
		t.Errorf("pidfd and namespace disagree: %v", err)
	}
	if _, err := checkNamespace(pidfd, ns, 12345); codeOf(err) != wire.Refused {
		t.Errorf("somebody else's: %v", err)
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if _, err := checkNamespace(pidfd, ns, 0); codeOf(err) != wire.BadRequest {
		t.Errorf("a dead one: %v", err)
	}
}

// Bad callers leave nothing and stand in nobody's way.
func TestHookSocket(t *testing.T) {
	f := newFixture(t)
	path := filepath.Join(t.TempDir(), "hook.sock")
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
		if err == nil {
			err = wire.SetDeadline(fd, 5*time.Second)
		}
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	answer := func(fd int) wire.Reply {
		t.Helper()
		data, _, err := wire.Receive(fd)
		var r wire.Reply
		if err != nil || wire.Decode(data, &r) != nil {
			t.Fatalf("answer %q, %v", data, err)
		}
		return r
	}
	descriptors := func() int { e, _ := os.ReadDir("/proc/self/fd"); return len(e) }
	before := descriptors()
	var idle []int
	for range 50 {
		idle = append(idle, dial()) // says nothing
	}
	for _, c := range []struct {
		name, text string
		fds        []int
		want       wire.Code
	}{
		{"garbage", "{{{", nil, wire.BadRequest},
		{"unknown key", `{"version":1,"op":"bind","id":"x","pid":1,"root":true}`, nil, wire.BadRequest},
		{"old version", `{"version":0,"op":"bind","id":"x","pid":1}`, nil, wire.BadVersion},
		{"unknown operation", `{"version":1,"op":"unbind","id":"x","pid":1}`, nil, wire.BadRequest},
		{"no descriptors", `{"version":1,"op":"bind","id":"x","pid":1}`, nil, wire.BadRequest},
		{"wrong descriptors", `{"version":1,"op":"bind","id":"x","pid":1}`, []int{0, 1}, wire.BadRequest},
		{"too large", strings.Repeat("x", wire.MaxMessage+100), nil, wire.BadRequest},
		{"a hint", `{"version":1,"op":"ended","id":"x","pid":0}`, nil, wire.OK},
	} {
		fd := dial()
		var oob []byte
		if c.fds != nil {
			oob = unix.UnixRights(c.fds...)
		}
		if err := unix.Sendmsg(fd, []byte(c.text), oob, nil, 0); err != nil {
			t.Fatal(err)
		}
		if r := answer(fd); r.Code != c.want {
			t.Errorf("%s: %+v", c.name, r)
		}
		unix.Close(fd)
	}
	for range 1000 {
		unix.Close(dial()) // gone at once
	}
	for _, fd := range idle {
		unix.Close(fd)
	}
	for range 100 {
		if descriptors() <= before {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("%d descriptors, %d before", descriptors(), before)
}

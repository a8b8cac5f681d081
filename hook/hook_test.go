package main

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// serve answers one request on a real socket with reply, or not at all if reply
// is nil, and hands the request on.
func serve(t *testing.T, reply []byte) (socket string, got <-chan wire.Request) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "sock")
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(l, &unix.SockaddrUnix{Name: socket})
	}
	if err == nil {
		err = unix.Listen(l, 8)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := make(chan wire.Request, 1)
	go func() {
		fd, _, err := unix.Accept(l)
		if err != nil {
			return
		}
		defer unix.Close(fd)
		data, fds, err := wire.Receive(fd)
		for _, fd := range fds {
			unix.Close(fd)
		}
		var q wire.Request
		if err == nil && wire.Decode(data, &q) == nil {
			c <- q
		}
		if reply == nil {
			time.Sleep(5 * time.Second) // as a frozen daemon does
			return
		}
		_ = unix.Send(fd, reply, 0)
	}()
	t.Cleanup(func() { unix.Close(l) })
	return socket, c
}

func state(t *testing.T, pid int, annotations map[string]string) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{"ociVersion": "1.0", "id": "c1", "status": "created", "pid": pid, "bundle": "/", "annotations": annotations})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ask as the hook does, with a short deadline.
func askWith(t *testing.T, socket string, data []byte, wait time.Duration) error {
	t.Helper()
	s, err := parseState(data)
	if err != nil {
		t.Fatal(err)
	}
	return bind(socket, s, time.Now().Add(wait))
}

var annotated = map[string]string{wire.Annotation: "p", "other": strings.Repeat("x", 1<<20), "io.kubernetes.cri.container-name": "web"}

func TestBindAsksForThePolicyAndNoMore(t *testing.T) {
	socket, got := serve(t, []byte(`{"version":1,"code":"ok"}`))
	if err := askWith(t, socket, state(t, os.Getpid(), annotated), time.Second); err != nil {
		t.Fatal(err)
	}
	q := <-got
	if q.Op != wire.OpBind || q.ID != "c1" || q.PID != os.Getpid() || q.Annotations[wire.Annotation] != "p" {
		t.Errorf("%+v", q)
	}
	if q.Annotations["other"] != "" || q.Annotations["io.kubernetes.cri.container-name"] != "web" {
		t.Errorf("annotations %v", q.Annotations)
	}
}

// What the orchestrator calls the container is passed on, whoever runs it.
func TestOrchestratorNamesArePassedOn(t *testing.T) {
	all := map[string]string{}
	for _, key := range []string{"io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.container-name",
		"io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.container.name"} {
		all[key] = "x"
	}
	if q := request(wire.OpBind, &specs.State{ID: "c1", Annotations: all}); !maps.Equal(q.Annotations, all) {
		t.Errorf("annotations %v", q.Annotations)
	}
}

// Every way to fail has its own exit status.
func TestExitStatus(t *testing.T) {
	for code, want := range exitOfCode {
		reply, err := json.Marshal(wire.Reply{Version: wire.Version, Code: code, Message: "m"})
		if err != nil {
			t.Fatal(err)
		}
		socket, _ := serve(t, reply)
		if got := exitOf(askWith(t, socket, state(t, os.Getpid(), annotated), time.Second)); got != want {
			t.Errorf("%s: status %d, want %d", code, got, want)
		}
	}
	frozen, _ := serve(t, nil)
	garbage, _ := serve(t, []byte("{}}"))
	newer, _ := serve(t, []byte(`{"version":9,"code":"splendid"}`))
	missing := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		name, socket string
		pid, want    int
	}{
		{"frozen", frozen, os.Getpid(), exitTimeout},
		{"garbage", garbage, os.Getpid(), exitProtocol},
		{"unknown code", newer, os.Getpid(), exitProtocol},
		{"nobody listens", missing, os.Getpid(), exitUnavailable},
		{"pid 0", missing, 0, exitState},
		{"negative pid", missing, -1, exitState},
		{"dead pid", missing, 1 << 30, exitProcess},
	} {
		start := time.Now()
		got := exitOf(askWith(t, c.socket, state(t, c.pid, annotated), 300*time.Millisecond))
		if got != c.want {
			t.Errorf("%s: status %d, want %d", c.name, got, c.want)
		}
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("%s took %v", c.name, d)
		}
	}
}

func TestRun(t *testing.T) {
	slow, _ := io.Pipe() // never ends
	for _, c := range []struct {
		name  string
		args  []string
		stdin io.Reader
		want  int
	}{
		{"unannotated", []string{"createRuntime"}, bytes.NewReader(state(t, 1, nil)), 0},
		{"no arguments", nil, strings.NewReader(""), exitUsage},
		{"another stage", []string{"poststart"}, bytes.NewReader(state(t, 1, annotated)), exitUsage},
		{"no State", []string{"createRuntime"}, strings.NewReader(""), exitState},
		{"not JSON", []string{"createRuntime"}, strings.NewReader("{"), exitState},
		{"no id", []string{"createRuntime"}, strings.NewReader("{}"), exitState},
		{"poststop never stands in the way", []string{"poststop"}, strings.NewReader("{"), 0},
		{"stdin that never ends", []string{"createRuntime"}, slow, exitState},
		{"escaped slashes", []string{"createRuntime"}, strings.NewReader(`{"id":"c\/1","pid":1,"bundle":"\/x"}`), 0},
	} {
		var stderr bytes.Buffer
		if got := run(c.args, c.stdin, &stderr, time.Now().Add(200*time.Millisecond)); got != c.want {
			t.Errorf("%s: status %d, want %d: %s", c.name, got, c.want, stderr.String())
		}
		if c.want != 0 && c.want != exitUsage && strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: not one line: %q", c.name, stderr.String())
		}
	}
}

// The one file that the hook believes must be root's alone.
func TestConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hook.json")
	if c, err := readConfig(path); err != nil || c.Socket != wire.Socket || c.Baseline {
		t.Errorf("a missing file: %+v, %v", c, err)
	}
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		text string
		mode os.FileMode
	}{{"{", 0o644}, {`{"baselin":true}`, 0o644}, {`{"socket":"x"}`, 0o644}, {"{}", 0o666}, {"{}", 0o664}} {
		if write(c.text, c.mode); true {
			if _, err := readConfig(path); err == nil {
				t.Errorf("%s, mode %o: trusted", c.text, c.mode)
			}
		}
	}
	if os.Getuid() == 0 {
		write(`{"baseline":true,"failOpen":["cni"]}`, 0o644)
		c, err := readConfig(path)
		if err != nil || !c.Baseline {
			t.Errorf("%+v, %v", c, err)
		}
		if !c.failOpen(map[string]string{"io.kubernetes.container.name": "cni"}) || c.failOpen(map[string]string{"io.kubernetes.container.name": "web"}) {
			t.Error("the fail-open list is not followed")
		}
	}
	target := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, target); err != nil {
		t.Fatal(err)
	}
	if _, err := readConfig(target); err == nil {
		t.Error("a symbolic link is followed")
	}
}

// Who starts a container writes annotations, too: he can't put it on the list.
func TestFailOpen(t *testing.T) {
	c := config{wire.Config{FailOpen: []string{"kube-system/cni", "proxy"}}}
	const ns, name = "io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.container-name"
	for _, x := range []struct {
		annotations map[string]string
		want        bool
	}{
		{map[string]string{ns: "kube-system", name: "cni"}, true},
		{map[string]string{ns: "shop", name: "cni"}, false},
		{map[string]string{name: "cni"}, false},
		{map[string]string{name: "proxy"}, true},
		{map[string]string{ns: "shop", name: "proxy"}, false},
		{map[string]string{ns: "shop", "io.kubernetes.pod.namespace": "kube-system", name: "cni"}, false},
		{map[string]string{ns: "kube-system", name: "web", "io.kubernetes.container.name": "cni"}, false},
		{map[string]string{ns: "kube-system"}, false},
		{nil, false},
	} {
		if got := c.failOpen(x.annotations); got != x.want {
			t.Errorf("%v: %v", x.annotations, got)
		}
	}
}

// A value that is too long is never passed over: it might be what tightens.
func TestTooLong(t *testing.T) {
	long := strings.Repeat("x", wire.MaxValue+1)
	for key, want := range map[string]int{wire.Annotation: exitBadRequest, wire.AnnotationInline: exitBadRequest, "app": exitBadRequest, "other": 0} {
		socket, _ := serve(t, []byte(`{"version":1,"code":"ok"}`))
		err := bind(socket, &specs.State{ID: "c1", Pid: os.Getpid(), Annotations: map[string]string{key: long}}, time.Now().Add(time.Second), "app")
		if exitOf(err) != want {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// What starts without the daemon is written down for it.
func TestTellLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	tellLater(path, &specs.State{ID: "c1", Pid: 7, Annotations: map[string]string{"io.kubernetes.container.name": "cni"}}, io.EOF)
	data, err := os.ReadFile(path)
	var u wire.Unconfined
	if err == nil {
		err = wire.Decode(data, &u)
	}
	if err != nil || u.ID != "c1" || u.Name != "cni" || u.Why != "EOF" {
		t.Errorf("%s %v", data, err)
	}
}

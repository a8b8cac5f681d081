package e2e

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A reload gives every running task the new rights at once; an invalid edit
// changes nothing.
func TestReload(t *testing.T) {
	writePolicy(t, "live", native("live", secretSpec))
	id := start(t, "runc", "live", nil)
	read := func(path string) bool {
		out, _ := in(t, "runc", id, "/bin/cat", path)
		return !strings.Contains(out, "denied")
	}
	if read("/secret") || !read("/public") {
		t.Fatal("the first policy does not hold")
	}
	// A rule for a program that the old policy never named: the sleeping
	// entrypoint was executed under it.
	writePolicy(t, "live", native("live", `  default: allow
  rules:
  - {effect: deny, paths: ["/public"], access: [read], executables: ["/bin/busybox"]}
`))
	if !read("/secret") || read("/public") {
		t.Fatal("the second policy does not hold")
	}
	if err := os.WriteFile(policiesDir+"/live.yaml", []byte("not a policy"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := command("dunnage", "reload"); err == nil || !strings.Contains(out, "keeps its policy") {
		t.Errorf("an invalid edit was taken: %s", out)
	}
	if !read("/secret") || read("/public") {
		t.Fatal("the invalid edit changed something")
	}
}

// A daemon that dies changes no verdict, and a new one takes over.
func TestDaemonDies(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	id := start(t, "crun", "secret", nil)
	denied := func(when string) {
		t.Helper()
		if out, _ := in(t, "crun", id, "/bin/cat", "/secret"); !strings.Contains(out, "denied") {
			t.Fatalf("%s: %s", when, out)
		}
		if out, _ := in(t, "crun", id, "/bin/cat", "/public"); out != "public" {
			t.Fatalf("%s: %s", when, out)
		}
	}
	killDaemon(t, unix.SIGKILL)
	denied("without a daemon")
	startDaemon(t)
	denied("with a new daemon")
	if out, _ := command("dunnage", "ps"); !strings.Contains(out, id) || !strings.Contains(out, "enforced") {
		t.Errorf("the new daemon does not know the container: %s", out)
	}
	killDaemon(t, unix.SIGKILL)
	if err := os.RemoveAll("/run/dunnage/containers"); err != nil {
		t.Fatal(err)
	}
	startDaemon(t)
	denied("with its files lost")
}

// The number of a namespace is given out again at once; what belonged to the
// container before does not apply to the next one.
func TestRecycledNamespace(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	confined := bundle(t, "secret", nil, "/bin/cat", "/secret", "/proc/self/mountinfo")
	plain := bundle(t, "", nil, "/bin/cat", "/secret")
	for range 5 {
		if _, out, _ := runOnce(t, "runc", confined); strings.Contains(out, "topsecret") {
			t.Fatal(out)
		}
		if _, out, status := runOnce(t, "runc", plain); status != 0 || !strings.Contains(out, "topsecret") {
			t.Fatalf("the policy of the container before applies: %s", out)
		}
	}
}

// An ended container leaves nothing.
func TestNothingIsLeft(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	bad := bundle(t, "secret", nil, "/bin/no-such-program")
	for range 5 {
		if _, _, status := runOnce(t, "runc", bad); status == 0 {
			t.Fatal("it ran")
		}
	}
	for range 20 {
		var lines []any
		out, err := command("dunnage", "ps", "-o", "json")
		if err != nil {
			t.Fatal(out)
		}
		if json.Unmarshal([]byte(out), &lines) == nil && len(lines) == 0 {
			return
		}
		time.Sleep(250 * time.Millisecond)
	}
	out, _ := command("dunnage", "ps")
	t.Fatalf("still there:\n%s", out)
}

// A policy can be put on a container that runs, and taken off.
func TestAttach(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	id := start(t, "runc", "", nil)
	state, err := command("runc", "state", id)
	if err != nil {
		t.Fatal(state)
	}
	var s specs.State
	if err := json.Unmarshal([]byte(state), &s); err != nil {
		t.Fatal(err)
	}
	ref := "pid:" + jsonNumber(s.Pid)
	if out, err := command("dunnage", "attach", ref, "secret"); err != nil {
		t.Fatalf("attach: %s", out)
	}
	if out, _ := in(t, "runc", id, "/bin/cat", "/secret"); !strings.Contains(out, "denied") {
		t.Errorf("attached: %s", out)
	}
	out, _ := command("dunnage", "explain", ref, "/secret", "--exe", "/bin/busybox")
	if !strings.HasPrefix(out, "secret: denied by deny "+policiesDir+"/secret.yaml:7:") {
		t.Errorf("explain: %s", out)
	}
	if out, err := command("dunnage", "detach", ref); err != nil {
		t.Fatalf("detach: %s", out)
	}
	if out, _ := in(t, "runc", id, "/bin/cat", "/secret"); out != "topsecret" {
		t.Errorf("detached: %s", out)
	}
	if out, err := command("dunnage", "attach", "pid:1", "secret"); err == nil {
		t.Errorf("attached to the host: %s", out)
	}
}

func jsonNumber(n int) string { b, _ := json.Marshal(n); return string(b) }

// An audit policy denies nothing and reports what it would deny.
func TestAudit(t *testing.T) {
	writePolicy(t, "watch", native("watch", "  mode: audit\n"+secretSpec))
	id := start(t, "runc", "watch", nil)
	if out, _ := in(t, "runc", id, "/bin/cat", "/secret"); out != "topsecret" {
		t.Errorf("audit denies: %s", out)
	}
	wantEvent(t, id, func(e event) bool { return e.Verdict == "audit" && e.Path == "/secret" })

	// The metrics of the same daemon say so, too.
	out, err := command("dunnage", "metrics")
	if err != nil {
		t.Fatal(out)
	}
	for _, want := range []string{`dunnage_events_total\{reason="[a-z]+",verdict="audit"\} [1-9]`, `dunnage_containers\{state="enforced"\} [1-9]`,
		`dunnage_rows [1-9]`, `dunnage_table_bytes [1-9]`, `dunnage_programs [1-9]`, `dunnage_hook_requests_total\{code="ok"\} [1-9]`,
		`dunnage_cache_fills_total [1-9]`} {
		if !regexp.MustCompile("(?m)^" + want).MatchString(out) {
			t.Errorf("%s: not in\n%s", want, out)
		}
	}
}

// A container without a mount namespace of its own is refused, and the host is
// untouched.
func TestHostNamespace(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	b := bundle(t, "secret", func(s *specs.Spec) {
		var keep []specs.LinuxNamespace
		for _, n := range s.Linux.Namespaces {
			if n.Type != specs.MountNamespace {
				keep = append(keep, n)
			}
		}
		s.Linux.Namespaces = keep
		s.Linux.MaskedPaths, s.Linux.ReadonlyPaths, s.Mounts = nil, nil, nil
	}, "/bin/cat", "/public")
	if _, out, status := runOnce(t, "crun", b); status == 0 {
		t.Errorf("it started: %s", out)
	}
	if out, err := command("cat", work+"/rootfs/secret"); err != nil {
		t.Errorf("the host is confined: %s", out)
	}
}

// `dunnage check` finds this VM complete, and a hooks.d file without its binary,
// which podman would ignore in silence.
func TestCheck(t *testing.T) {
	out, err := command("dunnage", "check")
	if err != nil || strings.Contains(out, "MISSING") || !strings.Contains(out, "hook file_open") {
		t.Fatalf("check: %v\n%s", err, out)
	}
	if err := os.Rename(hookPath, hookPath+".away"); err != nil {
		t.Fatal(err)
	}
	defer os.Rename(hookPath+".away", hookPath) //nolint:errcheck // later tests would say so
	out, err = command("dunnage", "check")
	if err == nil || !strings.Contains(out, "start containers UNCONFINED") {
		t.Errorf("a missing hook binary is not found: %v\n%s", err, out)
	}
}

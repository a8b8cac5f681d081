package e2e

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// starts is how often each cell of TestFirstAct starts a container.
func starts() int {
	if n, err := strconv.Atoi(os.Getenv("DUNNAGE_STARTS")); err == nil {
		return n
	}
	return 20
}

// The entrypoint's first act is denied in every start, while it may read what is
// allowed; without an annotation nothing is.
func TestFirstAct(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	for _, rt := range runtimes {
		t.Run(rt, func(t *testing.T) {
			// Two reads by the entrypoint itself: cat goes on after the first fails.
			confined := bundle(t, "secret", nil, "/bin/cat", "/secret", "/public")
			plain := bundle(t, "", nil, "/bin/cat", "/secret", "/public")
			last := ""
			for i := range starts() {
				id, out, status := runOnce(t, rt, confined)
				if status == 0 || strings.Contains(out, "topsecret") || !strings.Contains(out, "public") || !strings.Contains(out, "Permission denied") {
					t.Fatalf("start %d: status %d: %s", i, status, out)
				}
				last = id
			}
			e := wantEvent(t, last, func(e event) bool { return e.Path == "/secret" && e.Verdict == "denied" })
			if !strings.HasPrefix(e.Rule, "deny "+policiesDir+"/secret.yaml:7:") || e.Access != "read" || e.Executable != "/bin/busybox" || e.Policy != "secret" {
				t.Errorf("the event is %+v", e)
			}
			for range 3 {
				if _, out, status := runOnce(t, rt, plain); status != 0 || !strings.Contains(out, "topsecret") {
					t.Fatalf("unannotated: status %d: %s", status, out)
				}
			}
		})
	}
}

// The entrypoint itself may be forbidden.
func TestForbiddenEntrypoint(t *testing.T) {
	writePolicy(t, "noshell", native("noshell", `  default: allow
  rules:
  - {effect: deny, paths: ["/bin/busybox"], access: [exec]}
`))
	for _, rt := range runtimes {
		t.Run(rt, func(t *testing.T) {
			id, out, status := runOnce(t, rt, bundle(t, "noshell", nil, "/bin/cat", "/public"))
			if status == 0 || strings.Contains(out, "public\n") {
				t.Fatalf("status %d: %s", status, out)
			}
			wantEvent(t, id, func(e event) bool { return e.Access == "exec" && e.Path == "/bin/busybox" && e.Verdict == "denied" })
		})
	}
}

const denySpec = `  default: deny
  rules:
  - {effect: allow, paths: ["/bin"], access: [read, exec]}
  - {effect: allow, paths: ["/public", "/proc", "/etc"], access: [read]}
  - {effect: allow, paths: ["/dev"], access: [read, write]}
  - {effect: allow, paths: ["/tmp"], access: [all]}
`

// A policy that denies by default does not break the runtime's own work.
func TestDenyByDefault(t *testing.T) {
	writePolicy(t, "tight", native("tight", denySpec))
	for _, rt := range runtimes {
		t.Run(rt, func(t *testing.T) {
			id := start(t, rt, "tight", nil)
			if out, status := in(t, rt, id, "/bin/cat", "/public"); status != 0 || out != "public" {
				t.Errorf("exec: status %d: %s", status, out)
			}
			if out, status := in(t, rt, id, "/bin/cat", "/open/file"); status == 0 {
				t.Errorf("exec read what no rule allows: %s", out)
			}
			if out, status := in(t, rt, id, "/bin/sh", "-c", "echo x > /tmp/x && cat /tmp/x && rm /tmp/x"); status != 0 || out != "x" {
				t.Errorf("a shell: status %d: %s", status, out)
			}
			if out, err := command(rt, "kill", id, "KILL"); err != nil {
				t.Errorf("kill: %s", out)
			}
		})
	}
}

// Who is confined: children, grandchildren, those who join, those who leave for
// a namespace of their own; a container without annotation is not.
func TestWhoIsConfined(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	for _, rt := range runtimes {
		t.Run(rt, func(t *testing.T) {
			// All capabilities: what a root in the container can do at most.
			id := start(t, rt, "secret", allCapabilities)
			for name, args := range map[string][]string{
				"exec":        {"/bin/cat", "/secret"},
				"grandchild":  {"/bin/sh", "-c", "(sh -c 'cat /secret; true')"},
				"namespaces":  {"/bin/unshare", "-Urm", "/bin/cat", "/secret"},
				"own mntns":   {"/bin/actor", "unshared", "/secret"},
				"O_PATH":      {"/bin/actor", "reopen", "/secret"},
				"/proc/1":     {"/bin/cat", "/proc/1/root/secret"},
				"chroot":      {"/bin/actor", "chrooted", "/open/../", "/secret"},
				"open_tree":   {"/bin/actor", "detached", "/", "secret"},
				"copied file": {"/bin/cp", "/secret", "/tmp/copy"},
			} {
				if out, _ := in(t, rt, id, args...); strings.Contains(out, "topsecret") || out == "0" {
					t.Errorf("%s got at the secret: %s", name, out)
				}
			}
			if out, _ := in(t, rt, id, "/bin/cat", "/public"); out != "public" {
				t.Errorf("the public file: %s", out)
			}
			wantEvent(t, id, func(e event) bool { return e.Reason == "foreign" && e.Verdict == "denied" })
			plain := start(t, rt, "", nil)
			if out, _ := in(t, rt, plain, "/bin/cat", "/secret"); out != "topsecret" {
				t.Errorf("unannotated: %s", out)
			}
		})
	}
}

// allCapabilities gives a container every capability there is.
func allCapabilities(s *specs.Spec) {
	all := []string{"CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_FOWNER",
		"CAP_CHOWN", "CAP_MKNOD", "CAP_SETUID", "CAP_SETGID", "CAP_BPF", "CAP_PERFMON", "CAP_KILL", "CAP_LINUX_IMMUTABLE"}
	c := s.Process.Capabilities
	c.Bounding, c.Effective, c.Permitted, c.Inheritable, c.Ambient = all, all, all, all, nil
}

// An annotated container does not start when it can't be confined; each cause
// has its own message; a container without annotation starts.
func TestTrouble(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	if err := os.WriteFile(policiesDir+"/broken.yaml", []byte(native("broken", "  default: deny\n  rulez: []\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(policiesDir + "/broken.yaml")
	_, _ = command("dunnage", "reload")
	good := bundle(t, "secret", nil, "/bin/cat", "/public")
	plain := bundle(t, "", nil, "/bin/cat", "/public")
	for _, c := range []struct {
		name, message, status string
		bundle                string
		before, after         func()
	}{
		{"unknown policy", `unknown policy "sekret": did you mean "secret"?`, "23", bundle(t, "sekret", nil, "/bin/cat", "/public"), nil, nil},
		{"invalid policy", `invalid policy "broken": ` + policiesDir + "/broken.yaml:6:3", "24", bundle(t, "broken", nil, "/bin/cat", "/public"), nil, nil},
		{"frozen daemon", "the daemon does not answer", "13", good,
			func() { killDaemon(t, unix.SIGSTOP) }, func() { killDaemon(t, unix.SIGCONT) }},
		{"no daemon", "the daemon is not running", "12", good,
			func() { killDaemon(t, unix.SIGTERM) }, func() { startDaemon(t) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.before != nil {
				c.before()
			}
			if c.after != nil {
				defer c.after()
			}
			for _, rt := range runtimes {
				_, out, status := runOnce(t, rt, c.bundle)
				if status == 0 || strings.Contains(out, "public\n") {
					t.Fatalf("%s: it started: %s", rt, out)
				}
				log, err := os.ReadFile("/run/dunnage/hook.log")
				if err != nil || !strings.Contains(string(log), c.message) {
					t.Errorf("%s: the hook's log lacks %q: %s", rt, c.message, log)
				}
				// runc quotes what the hook said.
				if said := strings.ReplaceAll(out, `\"`, `"`); rt == "runc" && !strings.Contains(said, c.message) {
					t.Errorf("runc does not say %q: %s", c.message, out)
				}
				if rt == "crun" && !strings.Contains(out, "exit code: "+c.status) {
					t.Errorf("crun does not say the status %s: %s", c.status, out)
				}
				if _, out, status := runOnce(t, rt, plain); status != 0 {
					t.Errorf("%s: an unannotated container does not start: %s", rt, out)
				}
			}
		})
	}
	if _, out, status := runOnce(t, "runc", good); status != 0 {
		t.Errorf("afterwards: %s", out)
	}
}

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The packages, under a real systemd: installed, upgraded and removed while
// containers start in a loop. None fails, and none runs unconfined before the
// hook is taken away.
func TestPackages(t *testing.T) {
	if _, err := os.Stat("/run/systemd/private"); err != nil {
		t.Skip("needs systemd: make test-packages")
	}
	one := func(pattern string) string {
		found, _ := filepath.Glob(pattern)
		if len(found) != 1 {
			t.Fatalf("%s: %v", pattern, found)
		}
		return found[0]
	}
	dpkg := func(args ...string) {
		t.Helper()
		if out, err := command("dpkg", args...); err != nil {
			journal, _ := command("journalctl", "-u", "dunnage.service", "-n", "30", "--no-pager")
			t.Fatalf("dpkg %v: %s\n%s", args, out, journal)
		}
	}
	dpkg("-i", one("bin/packages/*.deb"))
	if out, err := command("systemctl", "is-active", "dunnage.socket", "dunnage.service"); err != nil {
		journal, _ := command("journalctl", "-u", "dunnage.service", "-n", "30", "--no-pager")
		t.Fatalf("the units: %s\n%s", out, journal)
	}
	if out, err := command("systemd-analyze", "verify", "dunnage.service", "dunnage.socket"); err != nil || strings.Contains(out, "dunnage") {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	writePolicy(t, "secret", native("secret", secretSpec))
	makeImage(t)
	// The daemon of the unit, hardened, can do what it must for a baseline.
	configure(t, "baseline: [secret]\n")
	if out := podmanRun("crun", image, "cat", "/secret"); !strings.Contains(out, "Permission denied") {
		t.Errorf("baseline: %s", out)
	}
	configure(t, "")
	t.Run("kube play", kubePlay)
	configure(t, "")

	var mu sync.Mutex
	counts, last := map[string]int{}, ""
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			out := podmanRun("crun", image, "--annotation", "io.dunnage.policy=secret", "sh", "-c", "cat /public; cat /secret")
			kind := "failed"
			if strings.Contains(out, "public") && strings.Contains(out, "topsecret") {
				kind = "unconfined"
			} else if strings.Contains(out, "public") && strings.Contains(out, "Permission denied") {
				kind = "confined"
			}
			mu.Lock()
			counts[kind]++
			if kind != "confined" {
				last = out
			}
			mu.Unlock()
		}
	}()
	seen := func(kind string) int {
		mu.Lock()
		defer mu.Unlock()
		return counts[kind]
	}
	wait := func(kind string, n int) {
		t.Helper()
		for begin, i := seen(kind), 0; seen(kind) < begin+n; i++ {
			if time.Sleep(200 * time.Millisecond); i > 300 {
				t.Fatalf("no %d starts are %s: %v %s", n, kind, counts, last)
			}
		}
	}
	if out, err := command("podman", "run", "-d", "--name", "long", "--network", "none", "--annotation", "io.dunnage.policy=secret", image, "sleep", "1000"); err != nil {
		t.Fatal(out)
	}
	confined := func(when string) {
		t.Helper()
		if out, _ := command("podman", "exec", "long", "cat", "/secret"); !strings.Contains(out, "Permission denied") {
			t.Errorf("%s: a running container: %s", when, out)
		}
	}
	wait("confined", 2)
	dpkg("-i", one("bin/upgrade/*.deb"))
	if out, _ := command("dpkg-query", "-W", "dunnage"); !strings.Contains(out, "99.0.0") {
		t.Errorf("not upgraded: %s", out)
	}
	confined("upgraded")
	wait("confined", 2)
	if seen("failed")+seen("unconfined") > 0 {
		t.Errorf("upgrade: %v %s", counts, last)
	}
	dpkg("-r", "dunnage")
	confined("removed")
	wait("unconfined", 2)
	close(stop)
	<-done
	if seen("failed") > 0 {
		t.Errorf("removal: %v %s", counts, last)
	}
	t.Logf("starts: %v", counts)
	for _, file := range []string{"/usr/bin/dunnage", hookPath, "/usr/share/containers/oci/hooks.d/dunnage.json", alwaysHook} {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s is left", file)
		}
	}
}

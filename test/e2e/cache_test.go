package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// cacheCounts is what the test looks at of `dunnage cache`.
type cacheCounts struct {
	Off   string
	Total struct {
		Hit, Fill, Disagreed uint64
		Refused, Stale       map[string]uint64
	}
}

func cacheNow(t *testing.T) cacheCounts {
	t.Helper()
	out, err := command("dunnage", "cache", "-o", "json")
	if err != nil {
		t.Fatalf("dunnage cache: %s", out)
	}
	var c cacheCounts
	if err := json.Unmarshal([]byte(out), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// What changes where a directory leads, done by the host or in the container's
// namespace, with the directory in the cache: the next open is judged by the
// new path. test/coherence does the same at random.
func TestCacheIsCoherent(t *testing.T) {
	writePolicy(t, "closed", native("closed", `  default: allow
  mounts: allow
  rules:
  - {effect: deny, paths: ["/m/closed"], access: [all]}
`))
	if c := cacheNow(t); c.Off != "" {
		t.Fatalf("the cache is off: %s", c.Off)
	}
	for name, mount := range fileSystems(t) {
		t.Run(name, func(t *testing.T) { coherent(t, name, mount) })
	}
}

func coherent(t *testing.T, system, mount string) {
	id := start(t, "runc", "closed", func(s *specs.Spec) {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/m", Source: mount, Type: "bind", Options: []string{"rbind", "rw"}})
	})
	init := initOf(t, id)
	host := func(args ...string) {
		t.Helper()
		if out, err := command(args[0], args[1:]...); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	inside := func(args ...string) {
		t.Helper()
		host(append([]string{"nsenter", "-m", "-t", init, "--", "/bin/busybox"}, args...)...)
	}
	ask := actorIn(t, id)
	read := func(path, want string) {
		t.Helper()
		for _, how := range []string{"first", "again"} { // the second from the cache, where there is an entry
			if got := ask("open-read " + path); got != want {
				t.Errorf("%s, %s: %s, want %s", path, how, got, want)
			}
		}
	}
	at := func(path string) string { return filepath.Join(mount, path) }
	file := func(path string) {
		t.Helper()
		host("mkdir", "-p", filepath.Dir(at(path)))
		host("sh", "-c", "echo x >'"+at(path)+"'")
	}
	const denied, allowed = "EACCES", "0"

	before := cacheNow(t).Total
	for _, c := range []struct {
		name string
		run  func()
	}{
		{"a file renamed in and out", func() {
			file("open/f")
			file("closed/g")
			read("/m/open/f", allowed)
			read("/m/closed/g", denied)
			host("mv", at("open/f"), at("closed/f"))
			read("/m/closed/f", denied)
			host("mv", at("closed/f"), at("open/f"))
			read("/m/open/f", allowed)
		}},
		{"a hard link is judged by the name used", func() {
			file("closed/h")
			host("ln", at("closed/h"), at("open/h"))
			read("/m/open/h", allowed)
			read("/m/closed/h", denied)
			host("rm", at("closed/h"))
			read("/m/open/h", allowed)
		}},
		{"a directory renamed", func() {
			file("open/d/f")
			read("/m/open/d/f", allowed)
			host("mv", at("open/d"), at("closed/d"))
			read("/m/closed/d/f", denied)
			host("mv", at("closed/d"), at("open/d"))
			read("/m/open/d/f", allowed)
		}},
		{"its grandparent renamed", func() {
			file("open/a/b/f")
			read("/m/open/a/b/f", allowed)
			host("mv", at("open/a"), at("closed/a"))
			read("/m/closed/a/b/f", denied)
		}},
		{"directories exchanged", func() {
			if system == "overlay" {
				return // overlayfs does not exchange directories of a lower layer
			}
			file("open/x/f")
			file("closed/y/f")
			read("/m/open/x/f", allowed)
			read("/m/closed/y/f", denied)
			host("actor", "exchange", at("open/x"), at("closed/y"))
			read("/m/open/x/f", allowed)
			read("/m/closed/y/f", denied)
		}},
		{"a directory removed, its number used again", func() {
			for range 8 {
				file("open/n/f")
				read("/m/open/n/f", allowed)
				host("rm", "-r", at("open/n"))
				file("closed/n/f")
				read("/m/closed/n/f", denied)
				host("rm", "-r", at("closed/n"))
			}
		}},
		{"mounted, covered and unmounted", func() {
			file("open/o/f")
			file("closed/p/f")
			read("/m/open/o/f", allowed)
			read("/m/closed/p/f", denied)
			inside("mount", "--bind", "/m/open/o", "/m/closed/p")
			read("/m/closed/p/f", denied) // by the path that it has there
			inside("mount", "--bind", "/m/closed", "/m/open/o")
			read("/m/open/o/p/f", allowed)
			read("/m/open/o/g", allowed)
			inside("umount", "-l", "/m/open/o")
			inside("umount", "/m/closed/p")
			read("/m/open/o/f", allowed)
			read("/m/closed/p/f", denied)
		}},
		{"a mount moved", func() {
			file("open/q/f")
			file("closed/r/f")
			inside("mount", "--make-private", "/m")
			inside("mount", "-t", "tmpfs", "none", "/m/open/q")
			inside("sh", "-c", "echo x >/m/open/q/moved")
			read("/m/open/q/moved", allowed)
			inside("mount", "--move", "/m/open/q", "/m/closed/r")
			read("/m/closed/r/moved", denied)
			inside("umount", "/m/closed/r")
		}},
		{"a single file mounted", func() {
			file("open/single")
			file("closed/single")
			inside("mount", "--bind", "/m/open/single", "/m/closed/single")
			read("/m/closed/single", denied)
			inside("umount", "/m/closed/single")
			inside("mount", "--bind", "/m/closed/single", "/m/open/single")
			read("/m/open/single", allowed)
			inside("umount", "/m/open/single")
			read("/m/open/single", allowed)
			read("/m/closed/single", denied)
		}},
		{"the policy reloaded", func() {
			file("open/s/f")
			read("/m/open/s/f", allowed)
			writePolicy(t, "closed", native("closed", `  default: allow
  mounts: allow
  rules:
  - {effect: deny, paths: ["/m/closed", "/m/open/s"], access: [all]}
`))
			read("/m/open/s/f", denied)
			writePolicy(t, "closed", native("closed", `  default: allow
  mounts: allow
  rules:
  - {effect: deny, paths: ["/m/closed"], access: [all]}
`))
			read("/m/open/s/f", allowed)
		}},
	} {
		t.Log(c.name)
		c.run()
	}
	if after := cacheNow(t).Total; after.Fill == before.Fill {
		t.Errorf("nothing went through the cache: %+v", after)
	} else {
		t.Logf("%d filled, stale %v, refused %v", after.Fill-before.Fill, after.Stale, after.Refused)
	}
}

// actorIn starts an actor in a container that does a line's operation, each in a
// process of its own, and returns its answer.
func actorIn(t *testing.T, id string) func(line string) string {
	t.Helper()
	cmd := exec.Command("runc", "exec", id, "/bin/actor", "batch")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	answers := bufio.NewScanner(stdout)
	return func(line string) string {
		t.Helper()
		if _, err := fmt.Fprintln(stdin, line); err != nil || !answers.Scan() {
			t.Fatalf("%s: no answer: %v %v", line, err, answers.Err())
		}
		return answers.Text()
	}
}

func initOf(t *testing.T, id string) string {
	t.Helper()
	out, err := command("runc", "state", id)
	if err != nil {
		t.Fatal(out)
	}
	var s struct{ Pid json.Number }
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	return s.Pid.String()
}

// The same file opened 2,000 times is walked once.
func TestCacheHits(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	if err := os.MkdirAll("/run/e2e/tmpfs", 0o755); err != nil {
		t.Fatal(err)
	}
	id := start(t, "crun", "secret", func(s *specs.Spec) {
		s.Mounts = append(s.Mounts, specs.Mount{Destination: "/m", Source: "/run/e2e/tmpfs", Type: "bind", Options: []string{"rbind", "rw"}})
	})
	if out, _ := in(t, "crun", id, "/bin/actor", "create", "/m/hits"); out != "0" {
		t.Fatal(out)
	}
	before := cacheNow(t).Total
	if out, _ := in(t, "crun", id, "/bin/actor", "bench", "/m/hits"); out == "" {
		t.Fatal("no answer")
	}
	after := cacheNow(t).Total
	if hits, fills := after.Hit-before.Hit, after.Fill-before.Fill; hits < 39_000 || fills > 200 {
		t.Errorf("40,000 opens of one file: %d hits, %d fills", hits, fills)
	}
}

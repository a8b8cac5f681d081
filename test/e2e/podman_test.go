package e2e

import (
	"strings"
	"testing"
)

const image = "localhost/e2e:1"

// makeImage imports the root file system as an image.
func makeImage(t *testing.T) {
	t.Helper()
	if out, err := command("tar", "-C", work+"/rootfs", "-cf", work+"/image.tar", "."); err != nil {
		t.Fatal(out)
	}
	if out, err := command("podman", "import", "-q", "--change", `CMD ["/bin/sh"]`, "--change", "ENV PATH=/bin", work+"/image.tar", image); err != nil {
		t.Fatal(out)
	}
}

// podman, through hooks.d: run, exec, cp, restart, events with the container's
// name; a container without annotation is untouched.
func TestPodman(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	makeImage(t)
	for _, rt := range runtimes {
		t.Run(rt, func(t *testing.T) {
			podman := func(args ...string) string {
				out, _ := command("podman", append([]string{"--runtime", rt}, args...)...)
				return strings.TrimSpace(out)
			}
			name := "pod-" + rt
			podman("run", "-d", "--network", "none", "--name", name, "--annotation", "io.dunnage.policy=secret", image, "sleep", "1000")
			t.Cleanup(func() { podman("rm", "-f", "-t", "0", name) })
			check := func(when string) {
				t.Helper()
				if out := podman("exec", name, "cat", "/public"); out != "public" {
					t.Errorf("%s: exec: %s", when, out)
				}
				if out := podman("exec", name, "cat", "/secret"); !strings.Contains(out, "Permission denied") {
					t.Errorf("%s: exec: %s", when, out)
				}
			}
			check("started")
			if out := podman("cp", name+":/secret", work+"/copied"); out != "" {
				t.Errorf("cp: %s", out)
			}
			if out, _ := command("cat", work+"/copied"); out != "topsecret\n" {
				t.Errorf("what cp copied: %s", out)
			}
			podman("restart", "-t", "0", name)
			check("restarted")
			if out, _ := command("dunnage", "ps"); !strings.Contains(out, name) {
				t.Errorf("ps does not have the name: %s", out)
			}
			if out, _ := command("dunnage", "events"); !strings.Contains(out, "denied "+name+": /bin/busybox") {
				t.Errorf("no event has the name: %s", out)
			}
			if out := podman("run", "--rm", "--network", "none", image, "cat", "/secret"); out != "topsecret" {
				t.Errorf("unannotated: %s", out)
			}
			if out := podman("run", "--rm", "--network", "none", "--annotation", "io.dunnage.policy=nosuch", image, "cat", "/public"); strings.Contains(out, "public\n") || strings.HasSuffix(out, "public") {
				t.Errorf("unknown policy: %s", out)
			}
		})
	}
}

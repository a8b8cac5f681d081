package e2e

import (
	"os"
	"strings"
	"testing"
	"time"
)

// look is what the containers of the ways run: it shows that it runs, and reads
// what the policy denies.
const look = "cat /public; cat /secret"

func wantConfined(t *testing.T, way, out string) {
	t.Helper()
	if !strings.Contains(out, "public") || strings.Contains(out, "topsecret") || !strings.Contains(out, "Permission denied") {
		t.Errorf("%s: %s", way, out)
	}
}

// The ways in which podman starts a container: in each the first act of the
// entrypoint is denied, while an allowed file is read.
func TestPodmanWays(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	makeImage(t)
	const asks = "io.dunnage.policy=secret"
	if err := os.WriteFile("/etc/subuid", []byte("containers:200000:200000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("/etc/subgid", []byte("containers:200000:200000\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, way := range []struct {
		name, rt string
		flags    []string
	}{
		{"init", "crun", []string{"--init"}},
		{"init", "runc", []string{"--init"}},
		{"the host's pids", "crun", []string{"--pid=host"}},
		{"the host's pids", "runc", []string{"--pid=host"}},
		{"read-only", "crun", []string{"--read-only"}},
		{"volume", "runc", []string{"-v=/etc/hostname:/open/name:ro", "-v=" + work + "/rootfs/data:/data"}},
		{"user namespace", "crun", []string{"--userns=auto"}},
		{"mapped ids", "runc", []string{"--uidmap=0:200000:65536"}},
		{"privileged", "crun", []string{"--privileged"}},
		{"another user", "runc", []string{"--user=1000:1000"}},
	} {
		args := append([]string{"--runtime", way.rt, "run", "--rm", "--network=none", "--annotation=" + asks}, way.flags...)
		out, _ := command("podman", append(args, image, "sh", "-c", look)...)
		wantConfined(t, way.name+" "+way.rt, out)
	}

	// A restart policy starts it again and again, confined each time.
	out, err := command("podman", "run", "-d", "--name", "again", "--restart=on-failure:2", "--network=none", "--annotation="+asks, image, "sh", "-c", look+"; exit 1")
	if err != nil {
		t.Fatal(out)
	}
	defer command("podman", "rm", "-f", "-t", "0", "again") //nolint:errcheck // the VM ends anyway
	for i := 0; strings.Count(out, "Permission denied") < 3; i++ {
		if i == 60 {
			t.Fatalf("restarts: %s", out)
		}
		time.Sleep(250 * time.Millisecond)
		out, _ = command("podman", "logs", "again")
	}
	if strings.Contains(out, "topsecret") {
		t.Errorf("restarts: %s", out)
	}
}

const kubePod = `apiVersion: v1
kind: Pod
metadata:
  name: shop
  annotations: {io.dunnage.policy/web: secret}
spec:
  restartPolicy: Never
  containers:
  - {name: web, image: "localhost/e2e:1", command: [sh, -c, "cat /public; cat /secret"]}
  - {name: free, image: "localhost/e2e:1", command: [sh, -c, "cat /public; cat /secret"]}
`

// kubePlay is podman kube play: a pod with an infra container, one container of
// which asks for a policy; a baseline then holds for all of them. It needs
// systemd: without it podman 4.3 gives a pod's cgroup no devices (crun: mknod
// /dev/null: Operation not permitted). TestPackages runs it.
func kubePlay(t *testing.T) {
	if err := os.WriteFile(work+"/pod.yaml", []byte(kubePod), 0o644); err != nil {
		t.Fatal(err)
	}
	play := func() (web, free string) {
		t.Helper()
		if out, err := command("podman", "kube", "play", "--network=none", work+"/pod.yaml"); err != nil {
			t.Fatal(out)
		}
		defer func() {
			if out, err := command("podman", "kube", "down", work+"/pod.yaml"); err != nil {
				t.Error(out)
			}
		}()
		for _, name := range []string{"shop-web", "shop-free"} {
			if out, err := command("podman", "wait", name); err != nil {
				t.Fatal(out)
			}
		}
		web, _ = command("podman", "logs", "shop-web")
		free, _ = command("podman", "logs", "shop-free")
		return web, free
	}
	web, free := play()
	wantConfined(t, "the one that asks", web)
	if !strings.Contains(free, "topsecret") {
		t.Errorf("the other one: %s", free)
	}
	configure(t, "baseline: [secret]\n")
	web, free = play()
	wantConfined(t, "web, with a baseline", web)
	wantConfined(t, "free, with a baseline", free)
}

// A user without privileges: the hook runs in his user namespace, the daemon
// sees who he really is, and the policy holds.
func TestRootless(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	if out, err := command("useradd", "--create-home", "--home-dir", "/run/rootless", "rootless"); err != nil {
		t.Fatal(out)
	}
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		if err := os.WriteFile(file, []byte("rootless:500000:65536\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := command("tar", "-C", work+"/rootfs", "-cf", "/run/rootless/image.tar", "."); err != nil {
		t.Fatal(out)
	}
	user := func(args ...string) string {
		out, _ := command("setpriv", append([]string{"--reuid", "rootless", "--regid", "rootless", "--clear-groups", "env", "-i", "-C", "/run/rootless",
			"HOME=/run/rootless", "XDG_RUNTIME_DIR=/run/rootless/run", "PATH=/usr/bin:/bin:/usr/sbin:/sbin",
			"podman", "--storage-driver=vfs", "--cgroup-manager=cgroupfs", "--runtime=crun"}, args...)...)
		return out
	}
	if out, err := command("install", "-d", "-o", "rootless", "/run/rootless/run"); err != nil {
		t.Fatal(out)
	}
	if out := user("import", "-q", "--change", "ENV PATH=/bin", "/run/rootless/image.tar", image); !strings.Contains(out, "sha256:") {
		t.Fatal(out)
	}
	run := []string{"run", "--rm", "--network=none", "--cgroups=disabled", "--annotation=io.dunnage.policy=secret"}
	wantConfined(t, "rootless", user(append(run, image, "sh", "-c", look)...))
	wantConfined(t, "a user namespace within", user(append(run, "--userns=keep-id", image, "sh", "-c", look)...))

	// What a user says of namespaces, or of a weaker policy, frees of nothing.
	writePolicy(t, "weak", native("weak", "  default: allow\n"))
	configure(t, "baseline: [secret]\nexemptions: [{namespaces: [kube-system]}]\n")
	wantConfined(t, "a namespace that he claims", user("run", "--rm", "--network=none", "--cgroups=disabled",
		"--annotation=io.kubernetes.pod.namespace=kube-system", image, "sh", "-c", look))
	wantConfined(t, "a weaker policy", user("run", "--rm", "--network=none", "--cgroups=disabled",
		"--annotation=io.dunnage.policy=weak", image, "sh", "-c", look))
}

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// containerdConfig is a containerd of its own, with NRI as it comes, that
// refuses containers while our plugin is away.
const containerdConfig = `version = 3
root = "/var/lib/containers/containerd"
state = "/run/containerd"
[plugins."io.containerd.nri.v1.nri".default_validator]
  enable = true
  required_plugins = ["dunnage"]
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "%[1]s"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "/usr/bin/%[2]s"
`

const pause = "localhost/pause:1"

// A real containerd, asked through the CRI as a kubelet would.
func TestContainerd(t *testing.T) {
	bin := os.Getenv("DUNNAGE_CONTAINERD")
	if bin == "" {
		t.Skip("needs containerd: make test-containerd")
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	writePolicy(t, "secret", native("secret", secretSpec))
	makeImage(t)
	if out, err := command("podman", "import", "-q", "--change", `CMD ["/bin/sleep","100000"]`, work+"/image.tar", pause); err != nil {
		t.Fatalf("podman import: %s", out)
	}
	var archives []string
	for name, of := range map[string]string{"app.tar": image, "pause.tar": pause} {
		archives = append(archives, filepath.Join(work, name))
		if out, err := command("podman", "save", "--format", "docker-archive", "-o", filepath.Join(work, name), of); err != nil {
			t.Fatalf("podman save: %s", out)
		}
	}
	t.Setenv("CONTAINER_RUNTIME_ENDPOINT", "unix:///run/containerd/containerd.sock")
	for _, runtime := range runtimes {
		t.Run(runtime, func(t *testing.T) { containerd(t, bin, runtime, archives) })
	}
}

func containerd(t *testing.T, bin, runtime string, archives []string) {
	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	daemon := exec.Command(filepath.Join(bin, "containerd"), "--config", file("config.toml", fmt.Sprintf(containerdConfig, pause, runtime)))
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = daemon.Process.Signal(unix.SIGTERM)
		_ = daemon.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("containerd: %s", text[max(0, len(text)-3000):])
		}
	})
	crictl := func(args ...string) (string, error) {
		t.Helper()
		out, err := command("crictl", append([]string{"--timeout", "60s"}, args...)...)
		return strings.TrimSpace(out), err
	}
	wait := func(what string, ok func() bool) {
		t.Helper()
		for range 300 {
			if ok() {
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
		t.Fatalf("%s: not in a minute", what)
	}
	wait("containerd's answer", func() bool { _, err := crictl("version"); return err == nil })
	for _, archive := range archives {
		if out, err := command("ctr", "-n", "k8s.io", "images", "import", archive); err != nil {
			t.Fatalf("import: %s", out)
		}
	}

	pods := 0
	// run runs a container in a pod of its own and returns what it prints.
	run := func(annotations, name string) (string, error) {
		t.Helper()
		pods++
		logs := filepath.Join(dir, fmt.Sprint("logs", pods))
		pod := file(fmt.Sprintf("pod%d.json", pods), fmt.Sprintf(`{"metadata":{"name":"p%d","namespace":"default","uid":"u%d-%s","attempt":1},
"log_directory":%q,"annotations":{%s},"linux":{"security_context":{"namespace_options":{"network":2}}}}`, pods, pods, runtime, logs, annotations))
		container := file(fmt.Sprintf("container%d.json", pods), fmt.Sprintf(`{"metadata":{"name":%q,"attempt":1},"image":{"image":%q},
"command":["/bin/sh","-c",%q],"log_path":"out.log","linux":{}}`, name, image, look))
		podID, err := crictl("runp", pod)
		if err != nil {
			return podID, err
		}
		defer func() { _, _ = crictl("rmp", "-f", podID) }()
		id, err := crictl("create", podID, container, pod)
		if err != nil {
			return id, err
		}
		if out, err := crictl("start", id); err != nil {
			return out, err
		}
		wait("the container's end", func() bool {
			out, _ := crictl("inspect", "-o", "go-template", "--template", "{{.status.state}}", id)
			return strings.Contains(out, "EXITED")
		})
		out, err := os.ReadFile(filepath.Join(logs, "out.log"))
		return string(out), err
	}

	// The plugin connects by itself, and until then nothing starts.
	var out string
	wait("a pod's container", func() bool { out, err = run(`"io.dunnage.policy":"secret"`, "app"); return err == nil })
	wantConfined(t, "pod", out)
	if out, err = run(`"io.dunnage.policy/app":"secret"`, "app"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wantConfined(t, "one container of a pod", out)
	for _, free := range []string{`"io.dunnage.policy/other":"secret"`, ``} {
		if out, err = run(free, "app"); err != nil || !strings.Contains(out, "topsecret") {
			t.Errorf("a container that asks for nothing: %v %s", err, out)
		}
	}
	if out, err = run(`"io.dunnage.policy":"no-such"`, "app"); err == nil || !strings.Contains(out, "no-such") {
		t.Errorf("an unknown policy: %v %s", err, out)
	}
	killDaemon(t, unix.SIGKILL)
	out, err = run(`"io.dunnage.policy":"secret"`, "app")
	startDaemon(t)
	if err == nil {
		t.Errorf("started while the daemon was away: %s", out)
	}
	wait("the plugin's return", func() bool { out, err = run(`"io.dunnage.policy":"secret"`, "app"); return err == nil })
	wantConfined(t, "after a restart of the daemon", out)
}

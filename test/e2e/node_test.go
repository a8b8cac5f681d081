package e2e

import (
	"os"
	"strings"
	"testing"
	"time"
)

const (
	configFile = "/etc/dunnage/config.yaml"
	alwaysHook = "/usr/share/containers/oci/hooks.d/dunnage-always.json"
)

// configure replaces the node's configuration and waits until the daemon has
// seen it; at the end of the test there is none.
func configure(t *testing.T, text string) {
	t.Helper()
	set := func(text string) {
		if err := os.WriteFile(configFile+".next", []byte("apiVersion: dunnage.io/v1\nkind: NodeConfig\n"+text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(configFile+".next", configFile); err != nil {
			t.Fatal(err)
		}
		if out, err := command("dunnage", "reload"); err != nil {
			t.Fatalf("reload: %s", out)
		}
	}
	set(text)
	t.Cleanup(func() {
		if _, err := os.Stat("/usr/bin/dunnage"); err == nil { // not removed with its package
			set("")
		}
		os.Remove(configFile)
	})
}

// podmanRun runs a container of an image with the default runtime's peer rt and
// returns what it printed.
func podmanRun(rt, image string, args ...string) string {
	var flags []string
	for len(args) > 0 && strings.HasPrefix(args[0], "--") {
		flags, args = append(flags, args[0], args[1]), args[2:]
	}
	all := append([]string{"--runtime", rt, "run", "--rm", "--network", "none"}, flags...)
	out, _ := command("podman", append(append(all, image), args...)...)
	return strings.TrimSpace(out)
}

// A baseline confines containers that ask for nothing, an exempt image's not;
// while the daemon is away none of them starts, but for the fail-open list.
func TestBaseline(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	writePolicy(t, "public", native("public", strings.ReplaceAll(secretSpec, "/secret", "/public")))
	makeImage(t)
	if out, err := command("podman", "tag", image, "quay.io/system/tool:1"); err != nil {
		t.Fatal(out)
	}
	t.Cleanup(func() { _, _ = command("podman", "untag", image, "quay.io/system/tool:1") })
	configure(t, "baseline: [secret]\nfailOpen: [cni]\n")
	if _, err := os.Stat(alwaysHook); err != nil {
		t.Fatal(err)
	}
	for _, rt := range runtimes {
		if out := podmanRun(rt, image, "cat", "/secret", "/public"); strings.Contains(out, "topsecret") || !strings.Contains(out, "public") {
			t.Errorf("%s: unannotated: %s", rt, out)
		}
		if out := podmanRun(rt, image, "--annotation", "io.dunnage.policy=public", "cat", "/secret", "/public"); strings.Contains(out, "topsecret") || strings.HasSuffix(out, "\npublic") {
			t.Errorf("%s: its own policy and the baseline: %s", rt, out)
		}
	}
	configure(t, "baseline: [secret]\nfailOpen: [cni]\nexemptions: [{images: ['quay.io/system/*']}]\n")
	if out := podmanRun("crun", image, "cat", "/secret"); out != "topsecret" {
		t.Errorf("exempt image: %s", out)
	}
	configure(t, "baseline: [secret]\nfailOpen: [cni]\n")

	killDaemon(t, 9)
	for _, rt := range runtimes {
		if out := podmanRun(rt, image, "echo", "started"); strings.HasSuffix(out, "started") {
			t.Errorf("%s: started without the daemon: %s", rt, out)
		}
	}
	if out := podmanRun("crun", image, "--annotation", "io.kubernetes.container.name=cni", "echo", "started"); !strings.HasSuffix(out, "started") {
		t.Errorf("the fail-open list: %s", out)
	}
	startDaemon(t)
	for range 30 {
		if out, _ := command("dunnage", "events"); strings.Contains(out, "unconfined") {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Error("no event for what started without the daemon")
}

// An edit is taken without being asked; an invalid one changes nothing.
func TestConfigurationEdited(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	makeImage(t)
	configure(t, "baseline: [secret]\n")
	if err := os.WriteFile(configFile, []byte("apiVersion: dunnage.io/v1\nkind: NodeConfig\nbaseline: [nosuch]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := command("dunnage", "config", "check")
	if err == nil || !strings.Contains(out, "config.yaml:3:12: error: unknown policy") {
		t.Errorf("config check: %s", out)
	}
	if out, err := command("dunnage", "reload"); err == nil || !strings.Contains(out, "config.yaml:3:12") {
		t.Errorf("reload: %s", out)
	}
	if out := podmanRun("crun", image, "cat", "/secret"); strings.Contains(out, "topsecret") {
		t.Errorf("after an invalid edit: %s", out)
	}
	if err := os.WriteFile(configFile, []byte("apiVersion: dunnage.io/v1\nkind: NodeConfig\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, err := os.Stat(alwaysHook); os.IsNotExist(err) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("the edit is not taken")
}

// buildImage adds annotations and labels to the image, by buildah.
func buildImage(t *testing.T, name string, settings ...string) {
	t.Helper()
	out, err := command("buildah", "from", "-q", "--pull-never", image)
	if err != nil {
		t.Fatal(out)
	}
	from := strings.TrimSpace(out)
	if out, err := command("buildah", append(append([]string{"config"}, settings...), from)...); err != nil {
		t.Fatal(out)
	}
	if out, err := command("buildah", "commit", "-q", "--rm", from, name); err != nil {
		t.Fatal(out)
	}
}

// An image may ask for policies and carry one. It only tightens: a weaker policy
// than the node's changes nothing, a stronger one holds.
func TestImages(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	writePolicy(t, "weak", native("weak", "  default: allow\n"))
	makeImage(t)
	inline := native("own", strings.ReplaceAll(secretSpec, "/secret", "/public"))
	if out, err := command("sh", "-c", "cd "+work+" && openssl genpkey -algorithm ed25519 -out key.pem && openssl pkey -in key.pem -pubout -out key.pub"); err != nil {
		t.Fatal(out)
	}
	if err := os.WriteFile(work+"/own.yaml", []byte(inline), 0o644); err != nil {
		t.Fatal(err)
	}
	signature, err := command("dunnage", "policy", "sign", "--key", work+"/key.pem", work+"/own.yaml")
	if err != nil {
		t.Fatal(signature)
	}
	carried := "io.dunnage.policy.inline=" + strings.TrimSpace(inline)
	buildImage(t, "localhost/weak:1", "--annotation", "io.dunnage.policy=weak")
	buildImage(t, "localhost/strong:1", "--label", "io.dunnage.policy=secret")
	buildImage(t, "localhost/unsigned:1", "--label", carried)
	buildImage(t, "localhost/signed:1", "--label", carried, "--label", strings.TrimSpace(signature))
	buildImage(t, "localhost/changed:1", "--label", carried+"\n  mounts: allow", "--label", strings.TrimSpace(signature))

	const closed, open, refused = "closed", "open", "refused"
	see := func(config, image, secret, public string) {
		t.Helper()
		configure(t, config)
		out := podmanRun("crun", image, "sh", "-c", "echo started; cat /secret; cat /public")
		for text, want := range map[string]string{"topsecret": secret, "public\n": public} {
			got := closed
			if !strings.Contains(out, "started") {
				got = refused
			} else if strings.Contains(out+"\n", text) {
				got = open
			}
			if got != want {
				t.Errorf("%s, %s: %s is %s, want %s: %s", config, image, strings.TrimSpace(text), got, want, out)
			}
		}
	}
	heard := "images: {annotations: true, inline: signed, keys: [" + work + "/key.pub]}\n"
	see("default: [secret]\n", "localhost/weak:1", closed, open)
	see("baseline: [secret]\n"+heard, "localhost/weak:1", closed, open)
	see(heard, "localhost/strong:1", closed, open)
	see("images: {annotations: true, repositories: [quay.io/x]}\n", "localhost/strong:1", open, open)
	see("baseline: [secret]\n"+heard, "localhost/signed:1", closed, closed)
	see(heard, "localhost/unsigned:1", refused, refused)
	see(heard, "localhost/changed:1", refused, refused)
	see("", "localhost/signed:1", open, open)
}

// A container whose runtime ran no hook is found and reported, with a baseline
// or an annotation; one that needs no policy is not.
func TestSafetyNet(t *testing.T) {
	writePolicy(t, "secret", native("secret", secretSpec))
	makeImage(t)
	if err := os.MkdirAll(work+"/no-hooks", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{"hookless": {"--annotation", "io.dunnage.policy=secret"}, "plain": nil} {
		all := append([]string{"--hooks-dir", work + "/no-hooks", "run", "-d", "--name", name, "--network", "none"}, args...)
		if out, err := command("podman", append(all, image, "sleep", "1000")...); err != nil {
			t.Fatal(out)
		}
		defer command("podman", "rm", "-f", "-t", "0", name) //nolint:errcheck // the VM ends anyway
	}
	for range 100 {
		out, _ := command("dunnage", "events")
		if strings.Contains(out, "unconfined plain") {
			t.Fatalf("needs no policy: %s", out)
		}
		if strings.Contains(out, "unconfined hookless") {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Error("no event")
}

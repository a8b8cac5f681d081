// Package kubernetes tests the manifests: kustomize renders them, and what comes
// out must be valid, field for field, by the types of the Kubernetes API.
package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// render returns the documents that kustomize makes, by kind and name.
func render(t *testing.T) map[string][]byte {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), ".")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		out[r.GetKind()+" "+r.GetName()] = text
	}
	return out
}

func strict[T any](t *testing.T, text []byte) T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict(text, &v); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return v
}

func TestManifests(t *testing.T) {
	all := render(t)
	if len(all) != 4 {
		t.Fatalf("%d documents", len(all))
	}
	if ns := strict[corev1.Namespace](t, all["Namespace dunnage"]); ns.Name != "dunnage" {
		t.Errorf("%+v", ns)
	}
	maps := map[string]corev1.ConfigMap{}
	for _, name := range []string{"config", "policies"} {
		maps[name] = strict[corev1.ConfigMap](t, all["ConfigMap "+name])
		if maps[name].Namespace != "dunnage" {
			t.Errorf("%s is in namespace %q", name, maps[name].Namespace)
		}
	}
	ds := strict[appsv1.DaemonSet](t, all["DaemonSet dunnage"])
	spec := ds.Spec.Template.Spec
	for key, value := range ds.Spec.Selector.MatchLabels {
		if ds.Spec.Template.Labels[key] != value {
			t.Errorf("the selector does not select its own pods: %s", key)
		}
	}
	if !spec.HostPID || *spec.Containers[0].SecurityContext.Privileged != true {
		t.Error("the daemon sees no container, or may not load programs")
	}
	volumes := map[string]corev1.Volume{}
	for _, v := range spec.Volumes {
		volumes[v.Name] = v
		if v.ConfigMap != nil {
			if _, ok := maps[v.ConfigMap.Name]; !ok {
				t.Errorf("volume %s: no ConfigMap %s", v.Name, v.ConfigMap.Name)
			}
		}
	}
	// The daemon may be down when these two start: they must be able to without it.
	for _, c := range append(spec.InitContainers, spec.Containers...) {
		if !strings.HasPrefix(c.Image, "registry.example.com/dunnage:") {
			t.Errorf("%s: image %s", c.Name, c.Image)
		}
		if !strings.Contains(maps["config"].Data["config.yaml"], "dunnage/"+c.Name) {
			t.Errorf("%s is not on the fail-open list: with a baseline the pod would wait for itself", c.Name)
		}
		for _, m := range c.VolumeMounts {
			if _, ok := volumes[m.Name]; !ok {
				t.Errorf("%s mounts %s, which is not a volume", c.Name, m.Name)
			}
		}
	}
}

// The policy is the one that packages have: kustomize can't read it from there.
func TestPoliciesAreTheSame(t *testing.T) {
	files, err := filepath.Glob("policies/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		here, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		there, err := os.ReadFile("../" + file)
		if err != nil || string(here) != string(there) {
			t.Errorf("%s differs from packaging/%s: %v", file, file, err)
		}
	}
}

// The binary comes before the file that names it, and goes after it.
func TestInstallHook(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{"from/dunnage-hook": "binary", "from/dunnage.json": "{}", "host/etc/hook.json": "{}", "host/hooks.d/dunnage-always.json": "{}"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("sh", append([]string{"./install-hook"}, args...)...)
		cmd.Env = append(os.Environ(), "FROM="+dir+"/from", "HOST="+dir+"/host")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run()
	if st, err := os.Stat(dir + "/host/libexec/dunnage-hook"); err != nil || st.Mode().Perm() != 0o755 {
		t.Errorf("%v %v", st, err)
	}
	if _, err := os.Stat(dir + "/host/hooks.d/dunnage.json"); err != nil {
		t.Error(err)
	}
	run("remove")
	for _, path := range []string{"libexec/dunnage-hook", "hooks.d/dunnage.json", "hooks.d/dunnage-always.json", "etc/hook.json"} {
		if _, err := os.Stat(filepath.Join(dir, "host", path)); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}

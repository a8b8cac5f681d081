package main

import (
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
)

const variantsText = `policies:
  - executable: "filepath = /bin/base"
    can_access_dirs: ["/data:read"]
  - executable: "filepath = /bin/web | container = shop:*:web"
    can_access_dirs: ["/srv:read"]
`

// The rules of a variant are picked by what the orchestrator calls the
// container, at the start and by a reload of a daemon that came later.
func TestVariants(t *testing.T) {
	f := newFixture(t)
	f.write(t, "v", variantsText)
	f.policies = f.set(t)
	closed := func(layers []*policy.Policy, path string) bool {
		return !policy.Decide(layers, policy.Subject{Programs: []string{"/bin/sh"}}, path, policy.Read).Allowed
	}
	for i, c := range []struct {
		annotations map[string]string
		path        string
	}{
		{nil, "/data/x"},
		{map[string]string{"io.kubernetes.cri.sandbox-namespace": "shop", "io.kubernetes.cri.sandbox-name": "p", "io.kubernetes.cri.container-name": "web"}, "/srv/x"},
		{map[string]string{"io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.name": "p", "io.kubernetes.container.name": "web"}, "/srv/x"},
		{map[string]string{"io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.name": "p", "io.kubernetes.container.name": "db"}, "/data/x"},
	} {
		where, err := whereOf(c.annotations)
		if err != nil {
			t.Fatal(err)
		}
		layers, err := f.layersFor(f.policies, f.config, asked{Names: []string{"one", "v"}, Where: where})
		if err != nil || len(layers) != 2 || layers[1].Name != "v" {
			t.Fatalf("%d: %v, %v", i, layers, err)
		}
		for _, path := range []string{"/data/x", "/srv/x"} {
			if closed(layers, path) != (path == c.path) {
				t.Errorf("%v: %s closed: %v", c.annotations, path, path != c.path)
			}
		}
	}

	q := ask("c1", 1, "v")
	q.Where = policy.Container{Namespace: "shop", Pod: "p", Name: "web"}
	c, err := f.bind(q)
	if err != nil {
		t.Fatal(err)
	}
	next := f.open(t)
	if err := next.adopt(); err != nil {
		t.Fatal(err)
	}
	f.write(t, "v", strings.ReplaceAll(strings.ReplaceAll(variantsText, "/srv", "/new"), "/data", "/base"))
	if err := next.reload(f.set(t)); err != nil {
		t.Fatal(err)
	}
	if got := next.get(c.Instance); !closed(got.Layers, "/new/x") || closed(got.Layers, "/base/x") || closed(got.Layers, "/srv/x") {
		t.Errorf("after a reload: %+v", got.Layers)
	}

	// The same question to the live container, with the rules that nearly counted.
	e, err := next.explain(question{Container: "c1", Programs: []string{"/bin/sh"}, Access: "read", Path: "/new/x"})
	if err != nil || e.Verdict != "denied" || e.Policy != "v" || len(e.Near) == 0 || e.Near[0].Why != "it names other executables" {
		t.Errorf("explained: %+v, %v", e, err)
	}
}

// Attaching by hand finds an orchestrator's names in annotations or labels.
func TestWhereOf(t *testing.T) {
	want := policy.Container{Namespace: "n", Pod: "p", Name: "c"}
	labels := map[string]string{"io.kubernetes.pod.namespace": "n", "io.kubernetes.pod.name": "p", "io.kubernetes.container.name": "c"}
	cri := map[string]string{"io.kubernetes.cri.sandbox-namespace": "n", "io.kubernetes.cri.sandbox-name": "p", "io.kubernetes.cri.container-name": "c"}
	for i, sources := range [][]map[string]string{{labels}, {nil, labels}, {cri, labels}} {
		if got, err := whereOf(sources...); err != nil || got != want {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
	}
	if got, err := whereOf(cri, map[string]string{"io.kubernetes.pod.name": "other"}); err == nil {
		t.Errorf("two names of one pod: %+v", got)
	}
}

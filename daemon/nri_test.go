package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// nriRuntime is the runtime's side of NRI, the library that containerd has, with
// our plugin connected to it.
func nriRuntime(t *testing.T, f *fixture, running ...*api.Container) *adaptation.Adaptation {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "nri.sock")
	runtime, err := adaptation.New("test", "1", func(ctx context.Context, done adaptation.SyncCB) error {
		_, err := done(ctx, []*api.PodSandbox{testPod()}, running)
		return err
	}, func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(filepath.Join(dir, "none")), adaptation.WithPluginConfigPath(filepath.Join(dir, "none")))
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runtime.Stop)
	log := logrus.New()
	log.SetOutput(io.Discard)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	plugin := &nriPlugin{registry: f.registry, log: log.WithField("runtime", "nri")}
	go func() { defer close(ended); plugin.serveNRI(ctx, socket) }()
	t.Cleanup(func() { end(); <-ended })
	// It counts once it is synchronized: until then the runtime asks nobody.
	probe := &api.Container{Id: "probe", Name: "probe"}
	for range 300 {
		if got, err := create(t, runtime, testPod(), probe); err != nil || len(got.GetAnnotations()) > 0 {
			return runtime
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("the plugin does not connect")
	return nil
}

func testPod() *api.PodSandbox {
	return &api.PodSandbox{Id: "p1", Name: "pod", Namespace: "ns",
		Annotations: map[string]string{wire.Annotation: "one", wire.Annotation + "/web": "two", "other": "x"}}
}

func create(t *testing.T, runtime *adaptation.Adaptation, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	t.Helper()
	c.PodSandboxId = pod.Id
	reply, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: pod, Container: c})
	return reply.GetAdjust(), err
}

// A container of an annotated pod gets the hook and what its pod asks for; one
// that asks for nothing is left alone.
func TestNRIGivesTheHook(t *testing.T) {
	hookFiles(t)
	if err := os.WriteFile(hookBinaryPath, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	runtime := nriRuntime(t, newFixture(t))
	got, err := create(t, runtime, testPod(), &api.Container{Id: "c1", Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	if a := got.GetAnnotations(); a[wire.Annotation] != "one" || a[wire.Annotation+"/web"] != "two" || len(a) != 2 {
		t.Errorf("annotations: %v", a)
	}
	hooks := got.GetHooks().GetCreateRuntime()
	if len(hooks) != 1 || hooks[0].GetPath() != hookBinaryPath || hooks[0].GetTimeout().GetValue() != 5 {
		t.Errorf("hooks: %v", hooks)
	}

	if got, err = create(t, runtime, testPod(), &api.Container{Id: "c2", Name: "db"}); err != nil || got.GetAnnotations()[wire.Annotation+"/web"] != "" {
		t.Errorf("another container's annotation: %v, %v", got, err)
	}
	hooked := &api.Container{Id: "c3", Name: "db", Annotations: map[string]string{wire.Annotation: "one"},
		Hooks: &api.Hooks{CreateRuntime: []*api.Hook{{Path: hookBinaryPath}}}}
	if got, err = create(t, runtime, testPod(), hooked); err != nil || len(got.GetHooks().GetCreateRuntime()) != 0 || len(got.GetAnnotations()) != 0 {
		t.Errorf("it has all already: %v, %v", got, err)
	}
	bare := &api.PodSandbox{Id: "p2", Name: "bare"}
	if got, err = create(t, runtime, bare, &api.Container{Id: "c4", Name: "web"}); err != nil || len(got.GetHooks().GetCreateRuntime()) != 0 {
		t.Errorf("it asks for nothing: %v, %v", got, err)
	}
}

// With a policy for every container of the node, every one gets the hook; and
// where the hook's binary is missing, none that needs it starts.
func TestNRIBaselineAndMissingHook(t *testing.T) {
	hookFiles(t)
	f := newFixture(t)
	f.config = testConfig(t, "baseline: [one]\n")
	runtime := nriRuntime(t, f)
	bare := &api.PodSandbox{Id: "p2", Name: "bare"}
	if got, err := create(t, runtime, bare, &api.Container{Id: "c1", Name: "web"}); err == nil {
		t.Errorf("no binary, and yet: %v", got)
	}
	if err := os.WriteFile(hookBinaryPath, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := create(t, runtime, bare, &api.Container{Id: "c1", Name: "web"}); err != nil || len(got.GetHooks().GetCreateRuntime()) != 1 {
		t.Errorf("the baseline: %v, %v", got, err)
	}
}

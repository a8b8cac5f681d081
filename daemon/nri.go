package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/sirupsen/logrus"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// nriSocket is where containerd (from 2.0 by default) and CRI-O listen for plugins.
const nriSocket = "/var/run/nri/nri.sock"

// nriPlugin is the front door for containerd: it gives a pod's container that
// asks for policies the OCI hook and its pod's annotations. From there on all is
// as with any other runtime, and it is the runtime itself that fails closed.
type nriPlugin struct {
	registry *registry
	log      *logrus.Entry
	attach   bool // label those that run without the policies they ask for
}

// serveNRI keeps the plugin connected until ctx ends. A node without the socket
// costs a look every few seconds.
func (p *nriPlugin) serveNRI(ctx context.Context, socket string) {
	for {
		if _, err := os.Stat(socket); err == nil {
			err := p.connect(ctx, socket)
			if ctx.Err() != nil {
				return
			}
			p.log.WithError(err).Warn("the NRI connection ended: containerd's containers start without a policy until it is back")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Second):
		}
	}
}

// connect registers the plugin and returns when the connection has ended.
func (p *nriPlugin) connect(ctx context.Context, socket string) error {
	closed := make(chan struct{})
	s, err := stub.New(p, stub.WithPluginName("dunnage"), stub.WithPluginIdx("90"), stub.WithSocketPath(socket),
		stub.WithOnClose(func() { close(closed) }), stub.WithLogger(nriLogger{p.log}),
		// Where the runtime knows this (NRI 0.12), a container is refused when the
		// plugin does not answer in time; older ones go on without it.
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true, KeepConnected: true}))
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := s.Start(ctx); err != nil {
		return err
	}
	p.log.WithField("socket", socket).Info("connected to NRI")
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return errors.New("closed by the runtime")
	}
}

// CreateContainer is called before a container is made; an error refuses it.
func (p *nriPlugin) CreateContainer(_ context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	wanted := annotationsFor(pod, c)
	p.registry.mu.Lock()
	every := p.registry.config.everyContainer()
	p.registry.mu.Unlock()
	if len(wanted) == 0 && !every {
		return nil, nil, nil
	}
	if _, err := os.Stat(hookBinaryPath); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("dunnage: %s is missing: install it, or containers that ask for a policy can't start", hookBinaryPath)
	}
	adjust := &api.ContainerAdjustment{}
	for key, value := range wanted {
		if has, ok := c.GetAnnotations()[key]; !ok || has != value { // an empty value asks, too: it is refused
			adjust.AddAnnotation(key, value)
		}
	}
	if !hasHook(c) {
		adjust.AddHooks(&api.Hooks{CreateRuntime: []*api.Hook{{
			Path: hookBinaryPath, Args: []string{"dunnage-hook", "createRuntime"}, Env: []string{"LC_ALL=C"}, Timeout: api.Int(5)}}})
	}
	return adjust, nil, nil
}

// hasHook reports whether the runtime's own configuration gave it the hook.
func hasHook(c *api.Container) bool {
	return slices.ContainsFunc(c.GetHooks().GetCreateRuntime(), func(h *api.Hook) bool { return h.GetPath() == hookBinaryPath })
}

// annotationsFor is what a pod's and a container's annotations ask for. Those of
// the pod hold for all of its containers, with /NAME for one; a container's own
// wins.
func annotationsFor(pod *api.PodSandbox, c *api.Container) map[string]string {
	out := map[string]string{}
	for _, annotations := range []map[string]string{pod.GetAnnotations(), c.GetAnnotations()} {
		for _, key := range []string{wire.Annotation, wire.AnnotationInline, wire.Annotation + "/" + c.GetName()} {
			if value, ok := annotations[key]; ok {
				out[key] = value
			}
		}
	}
	return out
}

// Synchronize is called with what runs when the plugin connects. It answers at
// once: the runtime waits two seconds at most.
func (p *nriPlugin) Synchronize(_ context.Context, pods []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	go p.reconcile(pods, containers)
	return nil, nil
}

// reconcile reports the containers that run without the policies they ask for,
// and labels them if that is asked.
func (p *nriPlugin) reconcile(pods []*api.PodSandbox, containers []*api.Container) {
	byID := map[string]*api.PodSandbox{}
	for _, pod := range pods {
		byID[pod.GetId()] = pod
	}
	for _, c := range containers {
		pod := byID[c.GetPodSandboxId()]
		wanted := annotationsFor(pod, c)
		if len(wanted) == 0 || c.GetState() != api.ContainerState_CONTAINER_RUNNING {
			continue
		}
		// A user's container may have any id: only root's counts here.
		if found, err := p.registry.find(c.GetId()); err == nil && found.ID == c.GetId() && found.Asked.UID == 0 {
			continue
		}
		log := p.log.WithFields(logrus.Fields{"container": c.GetId(), "name": c.GetName(), "pod": pod.GetName(), "namespace": pod.GetNamespace()})
		if !p.attach {
			log.Warn("runs without the policies that it asks for: it was started while the daemon was away (--attach-missing labels such containers)")
			continue
		}
		names := append(policiesOf(wanted[wire.Annotation]), policiesOf(wanted[wire.Annotation+"/"+c.GetName()])...)
		where, err := whereOf(c.GetAnnotations(), pod.GetAnnotations())
		if err == nil {
			_, err = p.registry.attach(attachRequest{ID: c.GetId(), Name: c.GetName(), PID: int(c.GetPid()), Policies: names, Where: where})
		}
		if err != nil {
			log.WithError(err).Error("runs without the policies that it asks for, and can't be labelled")
			continue
		}
		log.Warn("ran without the policies that it asks for: its tasks are labelled now")
	}
}

// nriLogger takes the library's messages: only what is wrong is worth a line.
type nriLogger struct{ log *logrus.Entry }

func (l nriLogger) Debugf(_ context.Context, f string, a ...any) { l.log.Debugf(f, a...) }
func (l nriLogger) Infof(_ context.Context, f string, a ...any)  { l.log.Debugf(f, a...) }
func (l nriLogger) Warnf(_ context.Context, f string, a ...any)  { l.log.Warnf(f, a...) }
func (l nriLogger) Errorf(_ context.Context, f string, a ...any) { l.log.Errorf(f, a...) }

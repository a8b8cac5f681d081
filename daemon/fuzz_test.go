package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/hook/wire"
	"github.com/dunnage-project/dunnage/policy"
)

// A request, whatever it says, binds nothing without its descriptors, and is
// answered with a code that says whose fault it is.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"version":1,"op":"bind","id":"x","pid":1,"annotations":{"io.dunnage.policy":"a,b"}}`), uint32(0))
	f.Add([]byte(`{"version":1,"op":"ended","id":"x","pid":1}`), uint32(1000))
	fix := newFixture(f)
	f.Fuzz(func(t *testing.T, data []byte, uid uint32) {
		pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(pidfd)
		for _, fds := range [][]int{nil, {pidfd, pidfd}} {
			if err := fix.answer(data, fds, uid); err != nil && codeOf(err) == wire.Internal {
				t.Fatalf("our own fault: %v", err)
			}
		}
		if len(fix.kernel.bindings) > 0 {
			t.Fatal("it was bound")
		}
	})
}

// What annotations ask for never takes the node's part away: a container that is
// not exempt has the baseline, every name once, and a user's has no say about
// who he is.
func FuzzChoose(f *testing.F) {
	f.Add("io.dunnage.policy", "one,,two", "app", "db", "io.kubernetes.pod.namespace", "kube-system", uint32(0), false)
	f.Add("io.dunnage.policy.inline", policyText, "io.dunnage.policy/web", "two", "io.podman.annotations.name", "web", uint32(1000), true)
	fix := newFixture(f)
	conf, diags := parseConfig("c.yaml", []byte(configHead+"baseline: [one]\nrules:\n- {annotation: app, value: 'd*', policies: [two]}\nexemptions:\n- {namespaces: [kube-system]}\nannotations: {inline: true}\n"))
	if diags.Err() != nil {
		f.Fatal(diags)
	}
	fix.config = conf
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2, k3, v3 string, uid uint32, noInline bool) {
		c := *conf
		c.Annotations.Inline = !noInline
		annotations := map[string]string{k1: v1, k2: v2, k3: v3}
		q := wire.Request{ID: "c1", Annotations: annotations}
		a, err := fix.askedBy(q, uid)
		if err != nil {
			if codeOf(err) == wire.Internal && !strings.Contains(err.Error(), "image") {
				t.Fatalf("our own fault: %v", err)
			}
			return
		}
		if uid != 0 && (a.Where != policy.Container{} || a.Image != nil) {
			t.Fatalf("a user says where he is: %+v", a)
		}
		got, err := c.choose(a)
		if err != nil {
			if codeOf(err) == wire.Internal {
				t.Fatalf("our own fault: %v", err)
			}
			return
		}
		if exempt := uid == 0 && a.Where.Namespace == "kube-system"; !exempt && !slices.Contains(got.names, "one") {
			t.Fatalf("%v, of user %d, is free of the baseline: %v", annotations, uid, got)
		}
		sorted := slices.Clone(got.names)
		slices.Sort(sorted)
		if len(slices.Compact(sorted)) != len(got.names) || len(got.inline) > 0 && noInline {
			t.Fatalf("%v", got)
		}
		for _, text := range got.inline {
			if p, err := text.parse(); err == nil && len(p.Include)+len(p.Variants) > 0 {
				t.Fatalf("an inline policy with more than itself: %+v", p)
			} else if err != nil && codeOf(err) != wire.InvalidPolicy {
				t.Fatal(err)
			}
		}
	})
}

// A configuration is refused with places, or everything in it is valid: names are
// names, patterns can be matched, and the hook reads what it is told.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(configHead + "baseline: [a]\ndefault: [b]\nrules:\n- {annotation: app, value: 'x*', policies: [c]}\nfailOpen: [kube-system/cni]\n"))
	f.Add([]byte(configHead + "exemptions:\n- {images: ['quay.io/**']}\nimages: {annotations: true, inline: allow, storage: [/x]}\nannotations: {policies: ['a*'], inline: false}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, diags := parseConfig("/nowhere/c.yaml", data)
		if diags.Err() != nil {
			for _, d := range diags {
				if d.Pos.Line < 1 || d.Message == "" {
					t.Fatalf("%+v", d)
				}
			}
			return
		}
		names := slices.Concat(c.Baseline, c.Default)
		patterns := slices.Concat(c.Annotations.Policies, c.Images.Repositories)
		for _, r := range c.Rules {
			names, patterns = append(names, r.Policies...), append(patterns, r.Value)
			if r.Key == "" || len(r.Policies) == 0 {
				t.Fatalf("%+v", r)
			}
		}
		for _, e := range c.Exemptions {
			patterns = slices.Concat(patterns, e.Namespaces, e.Images)
			if len(e.Namespaces)+len(e.Images) == 0 {
				t.Fatal("everything is exempt")
			}
		}
		for _, n := range names {
			if !policy.ValidName(n.Name) {
				t.Fatalf("name %q", n.Name)
			}
		}
		for _, p := range patterns {
			if _, err := path.Match(p, "x"); err != nil {
				t.Fatalf("pattern %q", p)
			}
		}
		out, err := json.Marshal(c.forHook("/s"))
		var w wire.Config
		if err != nil || wire.Decode(out, &w) != nil || w.Baseline != c.everyContainer() || len(w.FailOpen) != len(c.FailOpen) {
			t.Fatalf("the hook reads %+v of %s, %v", w, out, err)
		}
	})
}

// The storage's files, whatever is in them: an image that is found is the
// container's, and says only what is ours; nothing outside is read.
func FuzzStorage(f *testing.F) {
	f.Add([]byte(`[{"id":"c1","names":["web"],"image":"i1"}]`), []byte(`[{"id":"i1","names":["localhost/x:1"]}]`),
		[]byte(`{"config":{"digest":"aa"},"annotations":{"io.dunnage.policy":"weak","else":"x"}}`), []byte(`{"config":{"Labels":{"io.dunnage.policy":"l1"}}}`))
	f.Add([]byte(`[{"id":"c1","image":"../../x"}]`), []byte(`[{"id":"../../x"}]`), []byte(`{"config":{"digest":".."}}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, containers, images, manifest, config []byte) {
		for _, data := range [][]byte{containers, images, manifest, config} {
			if !json.Valid(data) {
				return // read again, three times: TestStorageDamaged
			}
		}
		root := t.TempDir()
		for name, data := range map[string][]byte{"overlay-containers/containers.json": containers, "overlay-images/images.json": images,
			"overlay-images/i1/manifest": manifest, "overlay-images/i1/aa": config} {
			file := filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, data, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		i, err := storage{[]string{root}}.imageOf("c1")
		if err != nil || i == nil {
			return
		}
		if i.ID == "" || strings.ContainsAny(i.ID, "/") || i.ID == ".." {
			t.Fatalf("image %q", i.ID)
		}
		for _, says := range []map[string]string{i.Annotations, i.Labels} {
			for key := range says {
				if !strings.HasPrefix(key, wire.Annotation) {
					t.Fatalf("key %q", key)
				}
			}
		}
		_ = i.from([]string{"localhost/**", "*/x"})
		var out choice
		conf := emptyConfig()
		conf.Images.Heard, conf.Images.Inline = true, inlineSigned
		if conf.hear(i, &out) == nil && len(out.inline) > 0 {
			t.Fatal("an unsigned policy is heard")
		}
	})
}

// The control socket answers every request with JSON, and an attach that is
// refused leaves nothing.
func FuzzControl(f *testing.F) {
	f.Add(uint8(0), []byte(`{"id":"c1","pid":999999999,"policies":["one"]}`), "")
	f.Add(uint8(1), []byte(`{"container":"c1","access":"read","path":"/x","programs":["/a"]}`), "")
	f.Add(uint8(2), []byte(`null`), "c1")
	fix := newFixture(f)
	if _, err := fix.bind(ask("c1", 1, "one")); err != nil {
		f.Fatal(err)
	}
	log := logrus.New()
	log.SetOutput(io.Discard)
	handler := (&daemon{registry: fix.registry, log: log, end: func() {}}).controlHandler()
	f.Fuzz(func(t *testing.T, which uint8, body []byte, query string) {
		paths := []string{"/v1/attach", "/v1/explain", "/v1/detach"}
		var a attachRequest
		if json.Unmarshal(body, &a) == nil && a.PID > 0 && a.PID < 1<<22 {
			return // a process of this machine
		}
		req := httptest.NewRequest("POST", paths[int(which)%len(paths)], strings.NewReader(string(body)))
		values := req.URL.Query()
		values.Set("container", query)
		req.URL.RawQuery = values.Encode()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if !json.Valid(w.Body.Bytes()) || w.Code != 200 && w.Code != 422 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if len(fix.kernel.bindings) != 1 || len(fix.kernel.tables) > 2 {
			t.Fatalf("%d bindings, %d tables", len(fix.kernel.bindings), len(fix.kernel.tables))
		}
	})
}

// A container gets the hook exactly if its pod's annotations and its own, as the
// hook will see them, ask for policies; and nothing else is written into it.
func FuzzNRI(f *testing.F) {
	f.Add("io.dunnage.policy", "one", "io.dunnage.policy/web", "two", "web")
	f.Add("io.dunnage.policy/db", "one", "x", "y", "web")
	f.Add("io.dunnage.policy/", "one", "", "", "")
	hook := filepath.Join(f.TempDir(), "hook")
	if err := os.WriteFile(hook, nil, 0o755); err != nil {
		f.Fatal(err)
	}
	before := hookBinaryPath
	hookBinaryPath = hook
	f.Cleanup(func() { hookBinaryPath = before })
	p := &nriPlugin{registry: newFixture(f).registry}
	f.Fuzz(func(t *testing.T, podKey, podValue, key, value, name string) {
		pod := &api.PodSandbox{Annotations: map[string]string{podKey: podValue}}
		c := &api.Container{Name: name, Annotations: map[string]string{key: value}}
		got, _, err := p.CreateContainer(t.Context(), pod, c)
		if err != nil {
			t.Fatal(err)
		}
		wanted := annotationsFor(pod, c)
		if (len(wanted) > 0) != (len(got.GetHooks().GetCreateRuntime()) == 1) {
			t.Fatalf("%v asks for %v and gets %v", pod.Annotations, wanted, got)
		}
		seen := map[string]string{key: value}
		for k, v := range got.GetAnnotations() {
			seen[k] = v
			if wanted[k] != v {
				t.Fatalf("%q is invented", k)
			}
		}
		if len(wanted) > 0 && !wire.Asks(seen) {
			t.Fatalf("the hook would let %v pass", seen)
		}
		if own, ok := c.Annotations[wire.Annotation]; ok && seen[wire.Annotation] != own {
			t.Fatal("the pod's word is above the container's own")
		}
	})
}

// Whatever the kernel reports, a report can be written on one line and read.
func FuzzDescribe(f *testing.F) {
	f.Add("/etc/x\n", "comm", "/bin/a", uint8(0), uint8(1), true)
	f.Add("\xff\x1b[2J", "\n", "", uint8(200), uint8(77), false)
	fix := newFixture(f)
	c, err := fix.bind(ask("c1", 1, "one", "two"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path, comm, program string, access, reason uint8, denied bool) {
		ev := bpf.Event{Path: path, Comm: comm, Access: policy.Kind(access), Reason: policy.Reason(reason), Denied: denied, Time: time.Unix(1, 0),
			Subject: policy.Subject{Programs: []string{program}}}
		r := describe(ev, c)
		out, err := json.Marshal(r)
		var again report
		if err != nil || strings.Contains(string(out), "\n") || json.Unmarshal(out, &again) != nil {
			t.Fatalf("%s %v", out, err)
		}
		if again.Path != path && string(again.PathBytes) != path {
			t.Fatalf("%q became %q", path, again.Path)
		}
		if line := r.line(); strings.ContainsAny(line, "\n\x1b\r") {
			t.Fatalf("a line that gives orders: %q", line)
		}
	})
}

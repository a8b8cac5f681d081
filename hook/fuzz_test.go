package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// What is read of a State is passed on unchanged: the daemon sees the id, the pid
// and every annotation that asks for a policy, and nothing that is not its
// business; or it is an error.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"id":"a","pid":1,"annotations":{"io.dunnage.policy":"p"}}`))
	f.Add([]byte(`{"id":"a","pid":-1,"annotations":{"io.dunnage.policy/web":"p","io.kubernetes.pod.name":"x","other":"y"}}`))
	f.Add([]byte(`{"id":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseState(data)
		if err != nil {
			return
		}
		if s.ID == "" {
			t.Fatal("no id")
		}
		q := request(wire.OpBind, s, "other")
		if wire.Asks(s.Annotations) != wire.Asks(q.Annotations) {
			t.Fatalf("%v asks, and %v does not, or the other way", s.Annotations, q.Annotations)
		}
		for key, value := range q.Annotations {
			if s.Annotations[key] != value {
				t.Fatalf("%q was invented", key)
			}
		}
		out, err := json.Marshal(q)
		var again wire.Request
		if err != nil || wire.Decode(out, &again) != nil {
			t.Fatalf("%+v can't be sent: %v", q, err)
		}
		if again.ID != q.ID || again.PID != q.PID || !maps.Equal(again.Annotations, q.Annotations) {
			t.Fatalf("%+v became %+v", q, again)
		}
	})
}

// What hook.json says is believed as it stands, and no container starts without
// the daemon that is not in its list by all that annotations say of it.
func FuzzHookFile(f *testing.F) {
	f.Add([]byte(`{"socket":"/run/dunnage/hook.sock","baseline":true,"failOpen":["kube-system/cni"],"annotations":["app"]}`), "kube-system", "cni", "")
	f.Add([]byte(`{"failOpen":["a"]}`), "", "a", "b")
	f.Fuzz(func(t *testing.T, data []byte, namespace, name, other string) {
		path := filepath.Join(t.TempDir(), "hook.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := readConfig(path)
		if err != nil {
			return
		}
		if !strings.HasPrefix(c.Socket, "/") {
			t.Fatalf("socket %q", c.Socket)
		}
		out, err := json.Marshal(c.Config)
		var again wire.Config
		if err != nil || wire.Decode(out, &again) != nil || again.Baseline != c.Baseline || !slices.Equal(again.FailOpen, c.FailOpen) || !slices.Equal(again.Annotations, c.Annotations) {
			t.Fatalf("%+v became %+v, %v", c.Config, again, err)
		}
		annotations := map[string]string{wire.NamespaceKeys()[0]: namespace, wire.NameKeys()[0]: name, wire.NameKeys()[1]: other}
		if !c.failOpen(annotations) {
			return
		}
		want := name
		if name == "" {
			want = other
		}
		if namespace != "" {
			want = namespace + "/" + want
		}
		if name != "" && other != "" && name != other || want == "" || !slices.Contains(c.FailOpen, want) {
			t.Fatalf("%v starts without the daemon: %v", annotations, c.FailOpen)
		}
		if reflect.DeepEqual(c.FailOpen, []string(nil)) {
			t.Fatal("nobody is in the list")
		}
	})
}

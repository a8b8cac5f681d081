package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// hookFiles redirects what the daemon writes for the hook.
func hookFiles(t *testing.T) (s settings, hookJSON, always string) {
	t.Helper()
	dir := t.TempDir()
	oldConfig, oldBinary := hookConfigPath, hookBinaryPath
	t.Cleanup(func() { hookConfigPath, hookBinaryPath = oldConfig, oldBinary })
	hookConfigPath, hookBinaryPath = filepath.Join(dir, "hook.json"), filepath.Join(dir, "dunnage-hook")
	s = settings{hooksDir: filepath.Join(dir, "hooks.d"), socket: wire.Socket, config: filepath.Join(dir, "config.yaml")}
	return s, hookConfigPath, filepath.Join(s.hooksDir, alwaysFile)
}

// The hook is told of a baseline, and no longer when there is none.
func TestTellHook(t *testing.T) {
	s, hookJSON, always := hookFiles(t)
	if err := s.tellHook(emptyConfig()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{hookJSON, always} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s was made without need", path)
		}
	}
	conf := testConfig(t, "baseline: [one]\nfailOpen: [kube-system/cni]\n")
	if err := s.tellHook(conf); err == nil || !strings.Contains(err.Error(), "dunnage-hook") {
		t.Errorf("a missing binary: %v", err)
	}
	if err := os.WriteFile(hookBinaryPath, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.tellHook(conf); err != nil {
		t.Fatal(err)
	}
	var told wire.Config
	data, err := os.ReadFile(hookJSON)
	if err == nil {
		err = wire.Decode(data, &told)
	}
	if err != nil || !told.Baseline || told.FailOpen[0] != "kube-system/cni" {
		t.Errorf("%s: %v", data, err)
	}
	if st, err := os.Stat(hookJSON); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", st, err)
	}
	var hook struct {
		When map[string]bool
		Hook struct{ Path string }
	}
	data, err = os.ReadFile(always)
	if err == nil {
		err = json.Unmarshal(data, &hook)
	}
	if err != nil || !hook.When["always"] || hook.Hook.Path != hookBinaryPath {
		t.Errorf("%s: %v", data, err)
	}
	if err := s.tellHook(emptyConfig()); err != nil {
		t.Fatal(err)
	}
	told = wire.Config{}
	data, err = os.ReadFile(hookJSON)
	if err == nil {
		err = wire.Decode(data, &told)
	}
	if err != nil || told.Baseline {
		t.Errorf("%s: %v", data, err)
	}
	if _, err := os.Stat(always); err == nil {
		t.Error("the hooks.d file is left")
	}
}

// An edit that can't be used changes nothing, in the daemon and for the hook.
func TestReloadOfTheConfiguration(t *testing.T) {
	s, hookJSON, _ := hookFiles(t)
	if err := os.WriteFile(hookBinaryPath, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	s.policies = f.dir
	log := logrus.New()
	log.SetOutput(io.Discard)
	d := &daemon{settings: s, registry: f.registry, log: log}
	changed, err := d.watchFiles(t.Context(), s.fingerprint())
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(s.config+".next", []byte(configHead+text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(s.config+".next", s.config); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
		case <-time.After(30 * time.Second):
			t.Fatal("the change is not seen")
		}
	}
	write("baseline: [one]\n")
	if err := d.reload(); err != nil || len(f.config.Baseline) != 1 {
		t.Fatalf("%+v, %v", f.config, err)
	}
	before, err := os.ReadFile(hookJSON)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"baseline: [tow]\n", "baseline: [one\n", "basline: [two]\n"} {
		old := f.config
		write(bad)
		if err := d.reload(); err == nil || !strings.Contains(err.Error(), "config.yaml:") {
			t.Errorf("%q: %v", bad, err)
		}
		if now, err := os.ReadFile(hookJSON); err != nil || string(now) != string(before) || f.config != old {
			t.Errorf("%q changed something: %s %v", bad, now, err)
		}
	}
	write("")
	if err := d.reload(); err != nil || len(f.config.Baseline) != 0 {
		t.Errorf("%+v, %v", f.config, err)
	}
}

// What started without the daemon is reported, once.
func TestUnconfined(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	events, err := openEventLog(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{log: log, events: events}
	path := filepath.Join(t.TempDir(), "unconfined.jsonl")
	if err := os.WriteFile(path, []byte("{\"id\":\"c1\",\"namespace\":\"kube-system\",\"name\":\"cni\",\"why\":\"down\"}\nnonsense\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.takeUnconfined(path); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(events.path)
	if err != nil || strings.Count(string(data), "\n") != 2 || !strings.Contains(string(data), `"name":"kube-system/cni"`) || !strings.Contains(string(data), `"verdict":"unconfined"`) {
		t.Errorf("%s %v", data, err)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dunnage-project/dunnage/hook/wire"
	"github.com/dunnage-project/dunnage/policy"
)

// hookConfigPath is the one file that the hook believes (hook/config.go).
var hookConfigPath = "/etc/dunnage/hook.json"

// alwaysFile makes podman and CRI-O run the hook for every container. The
// package's own file, for those with an annotation, stays beside it.
const alwaysFile = "dunnage-always.json"

// hookBinaryPath is where packages put the hook.
var hookBinaryPath = "/usr/libexec/dunnage/dunnage-hook"

// loadConfig reads the configuration, the command line's baseline included, and
// makes sure that its policies exist.
func (s settings) loadConfig(set *policy.Set) (*nodeConfig, error) {
	conf, err := loadConfig(s.config)
	if err != nil {
		return nil, err
	}
	if s.baseline != "" {
		conf.Baseline = append(conf.Baseline, named{s.baseline, policy.Position{File: "--baseline", Line: 1, Column: 1}})
	}
	return conf, conf.check(set)
}

// tellHook writes what the hook must know without the daemon, and the hooks.d
// file for every container, or removes that.
func (s settings) tellHook(conf *nodeConfig) error {
	always := filepath.Join(s.hooksDir, alwaysFile)
	if !conf.everyContainer() {
		if err := os.Remove(always); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the hook for every container: %w", err)
		}
	}
	if err := writeHookConfig(hookConfigPath, conf.forHook(s.socket)); err != nil {
		return fmt.Errorf("writing what the hook must know: %w", err)
	}
	if !conf.everyContainer() {
		return nil
	}
	if _, err := os.Stat(hookBinaryPath); err != nil {
		return withHint(fmt.Errorf("the hook for every container: %w", err), "runtimes silently ignore a hooks.d file whose binary is missing: install the hook")
	}
	hook := map[string]any{
		"version": "1.0.0",
		"hook": map[string]any{"path": hookBinaryPath, "args": []string{"dunnage-hook", "createRuntime"},
			"env": []string{"LC_ALL=C"}, "timeout": 5},
		"when":   map[string]any{"always": true},
		"stages": []string{"createRuntime"},
	}
	data, err := json.MarshalIndent(hook, "", "  ")
	if err == nil {
		err = replaceFile(always, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("writing the hook for every container: %w", err)
	}
	return nil
}

// writeHookConfig writes the hook's file. One that says no more than the hook
// assumes without it is not made.
func writeHookConfig(path string, c wire.Config) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && !c.Baseline && len(c.FailOpen) == 0 && c.Socket == wire.Socket {
		return nil
	}
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return replaceFile(path, append(data, '\n'))
}

// replaceFile writes a file that everybody may read, in one step, unless it is
// as wanted already.
func replaceFile(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new") // .new: not a name that hooks.d is read for
	if err := os.WriteFile(next, data, 0o644); err != nil {
		return err
	}
	if err := os.Chmod(next, 0o644); err != nil {
		return err
	}
	return os.Rename(next, path)
}

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dunnage-project/dunnage/bpf"
)

// defaultRunDir is on a tmpfs: what is there belongs to this boot.
const defaultRunDir = "/run/dunnage"

// store keeps one file a container, so that a new daemon can name and explain
// what the kernel goes on enforcing. Files are written whole or not at all.
type store struct{ dir string }

func newStore(runDir string) (*store, error) {
	dir := filepath.Join(runDir, "containers")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the state folder: %w", err)
	}
	return &store{dir}, nil
}

func (s *store) path(i bpf.Instance) string {
	return filepath.Join(s.dir, strconv.FormatUint(uint64(i), 10)+".json")
}

func (s *store) save(c *container) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return writeFile(s.path(c.Instance), data)
}

// writeFile replaces a file in one step.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

func (s *store) load(i bpf.Instance) (*container, error) {
	data, err := os.ReadFile(s.path(i))
	if err != nil {
		return nil, err
	}
	var c container
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", s.path(i), err)
	}
	if c.Instance != i {
		return nil, fmt.Errorf("%s: it is of instance %d", s.path(i), c.Instance)
	}
	return &c, nil
}

func (s *store) remove(i bpf.Instance) { _ = os.Remove(s.path(i)) }

// keepOnly removes the files of containers that are gone.
func (s *store) keepOnly(containers map[bpf.Instance]*container) error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the state folder: %w", err)
	}
	for _, e := range entries {
		n, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), ".json"), 10, 64)
		if err != nil || containers[bpf.Instance(n)] == nil {
			_ = os.Remove(filepath.Join(s.dir, e.Name()))
		}
	}
	return nil
}

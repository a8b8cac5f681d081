package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long the files must have been left alone before they are read.
const settle = 300 * time.Millisecond

// watchFiles says when what the configuration file says has changed, and, where
// it asks for that, what the policy folder holds. It looks at contents: folders
// are watched, since files are replaced by renaming, and ConfigMaps by a link.
func (d *daemon) watchFiles(ctx context.Context) (<-chan struct{}, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watching the configuration: %w", err)
	}
	for _, dir := range []string{filepath.Dir(d.config), d.policies} {
		if err := w.Add(dir); err != nil {
			d.log.WithError(err).Warnf("%s is not watched: `dunnage reload` after a change", dir)
		}
	}
	changed := make(chan struct{})
	last := d.fingerprint() // before anybody may rely on being heard
	go func() {
		defer w.Close()
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.Events:
				timer.Reset(settle)
			case err := <-w.Errors: // events were lost, perhaps: look
				d.log.WithError(err).Warn("watching the configuration")
				timer.Reset(settle)
			case <-timer.C:
				now := d.fingerprint()
				if now == last {
					continue
				}
				last = now
				select {
				case changed <- struct{}{}:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return changed, nil
}

// fingerprint is of the contents of what is watched.
func (d *daemon) fingerprint() [sha256.Size]byte {
	files := []string{d.config}
	d.registry.mu.Lock()
	all := d.registry.config.WatchPolicies
	d.registry.mu.Unlock()
	if all {
		for _, glob := range []string{"*.yaml", "*.yml"} {
			found, _ := filepath.Glob(filepath.Join(d.policies, glob))
			files = append(files, found...)
		}
		sort.Strings(files)
	}
	h := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		fmt.Fprintf(h, "%s %d %v\n", file, len(data), err)
		h.Write(data)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

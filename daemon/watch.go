package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long the files must have been left alone before they are read.
const settle = 300 * time.Millisecond

// watchFiles says when what the configuration file says has changed, and, where
// it asks for that, what the policy folder holds. It looks at contents: folders
// are watched, since files are replaced by renaming, and ConfigMaps by a link.
// last is the fingerprint from before they were read.
func (d *daemon) watchFiles(ctx context.Context, last fingerprint) (<-chan struct{}, error) {
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
	go func() {
		defer w.Close()
		timer := time.NewTimer(settle)
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
				if now.config == last.config && (now.policies == last.policies || !d.watchesPolicies()) {
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

func (d *daemon) watchesPolicies() bool {
	d.registry.mu.Lock()
	defer d.registry.mu.Unlock()
	return d.registry.config.WatchPolicies
}

// fingerprint is of the contents of what is watched.
type fingerprint struct{ config, policies [sha256.Size]byte }

func (s settings) fingerprint() fingerprint {
	sum := func(files ...string) [sha256.Size]byte {
		h := sha256.New()
		for _, file := range files {
			data, err := os.ReadFile(file)
			fmt.Fprintf(h, "%s %d %v\n", file, len(data), err)
			h.Write(data)
		}
		return [sha256.Size]byte(h.Sum(nil))
	}
	var files []string
	for _, glob := range []string{"*.yaml", "*.yml"} {
		found, _ := filepath.Glob(filepath.Join(s.policies, glob))
		files = append(files, found...)
	}
	return fingerprint{sum(s.config), sum(files...)}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/hook/wire"
)

// safetyNet looks for containers that should have policies and have none: a
// runtime ignores a hook whose binary is missing, `crun restore` runs none, and
// --hooks-dir leads elsewhere. It only reports; `dunnage attach` confines them.
// What it can't see is what ends between two looks, and rootless containers.
type safetyNet struct {
	registry *registry
	pidFiles []string // patterns: the runtimes' files of the pids of inits
	configs  []string // folders of config.json, with the container's id for %s; besides the pid file's
	report   func(report)
	reported map[string]bool // by id and pid
}

func newSafetyNet(r *registry, report func(report)) *safetyNet {
	return &safetyNet{registry: r, report: report, reported: map[string]bool{},
		pidFiles: []string{"/run/containers/storage/*-containers/*/userdata/pidfile", "/run/containerd/io.containerd.runtime.v2.task/*/*/init.pid",
			"/run/docker/containerd/daemon/io.containerd.runtime.v2.task/*/*/init.pid"},
		configs: []string{defaultStorage + "/overlay-containers/%s/userdata", defaultStorage + "/vfs-containers/%s/userdata"}}
}

func (s *safetyNet) run(ctx context.Context) {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		s.look()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look goes once through the containers that run.
func (s *safetyNet) look() {
	bound := s.registry.boundNamespaces()
	seen := map[string]bool{}
	for _, pattern := range s.pidFiles {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			id := filepath.Base(filepath.Dir(file))
			if id == "userdata" {
				id = filepath.Base(filepath.Dir(filepath.Dir(file)))
			}
			pid, ns, ok := s.initOf(file)
			if !ok || bound[ns] {
				continue
			}
			key := fmt.Sprintf("%s %d", id, pid)
			seen[key] = true
			if s.reported[key] {
				continue
			}
			s.judge(id, pid, filepath.Dir(file))
		}
	}
	maps.DeleteFunc(s.reported, func(key string, _ bool) bool { return !seen[key] })
}

// initOf is the init that a pid file names, unless its pid is another one's by
// now or it shares the host's namespace.
func (s *safetyNet) initOf(file string) (pid int, ns bpf.NamespaceID, ok bool) {
	data, err := os.ReadFile(file)
	st, statErr := os.Stat(file)
	if err != nil || statErr != nil {
		return 0, 0, false
	}
	if pid, err = strconv.Atoi(string(bytes.TrimSpace(data))); err != nil || pid <= 1 {
		return 0, 0, false
	}
	started, err := startOf(pid)
	if err != nil || started.After(st.ModTime().Add(2*time.Second)) {
		return 0, 0, false
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid))
	if err != nil {
		return 0, 0, false
	}
	defer f.Close()
	var mine unix.Stat_t
	if unix.Fstat(int(f.Fd()), &mine) != nil || sameNamespace(&mine, "/proc/1/ns/mnt") || sameNamespace(&mine, "/proc/self/ns/mnt") {
		return 0, 0, false
	}
	ns, err = s.registry.kernel.NamespaceID(int(f.Fd()))
	return pid, ns, err == nil
}

// startOf is when a process started.
func startOf(pid int) (time.Time, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return time.Time{}, err
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 20 {
		return time.Time{}, errors.New("a short stat")
	}
	ticks, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(time.Duration(ticks)*10*time.Millisecond - time.Duration(now.Nano())), nil // USER_HZ is 100
}

// judge reports a container that is bound to nothing, if it should be.
func (s *safetyNet) judge(id string, pid int, dir string) {
	var spec struct {
		Annotations map[string]string `json:"annotations"`
	}
	err := readJSON(filepath.Join(dir, "config.json"), &spec)
	for _, other := range s.configs {
		if errors.Is(err, fs.ErrNotExist) {
			err = readJSON(filepath.Join(fmt.Sprintf(other, id), "config.json"), &spec)
		}
	}
	if err != nil {
		return // gone meanwhile
	}
	a, err := s.registry.askedBy(wire.Request{ID: id, Annotations: spec.Annotations}, 0)
	if err == nil {
		s.registry.mu.Lock()
		conf := s.registry.config
		s.registry.mu.Unlock()
		var chosen choice
		if chosen, err = conf.choose(a); err == nil && len(chosen.names)+len(chosen.inline) == 0 {
			return
		}
	}
	s.reported[fmt.Sprintf("%s %d", id, pid)] = true
	s.report(report{Time: time.Now().UTC(), Container: id, Name: a.Container, PID: pid, Op: "start", Verdict: verdictUnconfined, Reason: "no-hook"})
}

// boundNamespaces is the namespaces that have a policy.
func (r *registry) boundNamespaces() map[bpf.NamespaceID]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[bpf.NamespaceID]bool{}
	for _, c := range r.containers {
		out[c.Namespace] = true
	}
	return out
}

package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/bpf"
)

// watcher tells when the init of a container has ended: one epoll over pidfds.
type watcher struct {
	epoll int
	mu    sync.Mutex
	of    map[int32]bpf.Instance
}

func newWatcher() (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making an epoll: %w", err)
	}
	return &watcher{epoll: fd, of: map[int32]bpf.Instance{}}, nil
}

// add watches a pidfd until its process ends. What can't be watched counts as
// ended: the reaper then looks for its tasks.
func (w *watcher) add(pidfd int, i bpf.Instance) {
	if pidfd < 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.of[int32(pidfd)] = i
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, pidfd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(pidfd)})
}

// run calls ended for each init that ends, until ctx is done.
func (w *watcher) run(ctx context.Context, ended func(bpf.Instance)) {
	events := make([]unix.EpollEvent, 64)
	for ctx.Err() == nil {
		n, err := unix.EpollWait(w.epoll, events, 500)
		if err != nil && err != unix.EINTR {
			return
		}
		for _, e := range events[:max(n, 0)] {
			w.mu.Lock()
			i, ok := w.of[e.Fd]
			delete(w.of, e.Fd)
			w.mu.Unlock()
			if ok {
				ended(i)
			}
		}
	}
}

// initEnded marks a container whose init has ended; its binding stays until
// its last task is gone, wherever that is.
func (r *registry) initEnded(i bpf.Instance) {
	r.mu.Lock()
	if c := r.containers[i]; c != nil {
		c.ended = true
	}
	r.mu.Unlock()
	r.reap()
}

// reap removes the ended containers that have no task left.
func (r *registry) reap() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ended []*container
	for _, c := range r.containers {
		if c.ended {
			ended = append(ended, c)
		}
	}
	if len(ended) == 0 {
		return
	}
	tasks, err := r.kernel.Tasks()
	if err != nil {
		r.log.WithError(err).Error("looking for the tasks of ended containers")
		return
	}
	for _, c := range ended {
		if tasks[c.Instance] == 0 {
			r.log.WithFields(c.fields()).Info("ended")
			r.forget(c)
		}
	}
}

// housekeeping reaps and sweeps until ctx is done.
func (r *registry) housekeeping(ctx context.Context) {
	reap, sweep := time.NewTicker(250*time.Millisecond), time.NewTicker(30*time.Second)
	defer reap.Stop()
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-reap.C:
			r.reap()
		case <-sweep.C:
			if err := r.kernel.Sweep(); err != nil {
				r.log.WithError(err).Error("sweeping programs")
			}
		}
	}
}

// adopt takes over what the kernel holds from a daemon before this one.
func (r *registry) adopt() error {
	bindings, err := r.kernel.Bindings()
	if err != nil {
		return err
	}
	for _, b := range bindings {
		c, err := r.store.load(b.Instance)
		if err != nil {
			r.log.WithError(err).WithField("instance", uint64(b.Instance)).Warn("a container's file is lost: it stays confined, but can't be explained or reloaded")
			c = &container{ID: fmt.Sprintf("unknown-%d", b.Instance)}
		}
		c.Instance, c.Namespace, c.PID, c.table, c.state = b.Instance, b.Namespace, b.Init, b.Table, b.State
		c.pidfd = r.reopen(c)
		c.ended = c.pidfd < 0
		r.containers[c.Instance] = c
		r.watch.add(c.pidfd, c.Instance)
		r.log.WithFields(c.fields()).Info("adopted")
	}
	return r.store.keepOnly(r.containers)
}

// reopen returns a pidfd of the container's init, or -1 if it has ended or if
// its pid is somebody else's now.
func (r *registry) reopen(c *container) int {
	fd, err := unix.PidfdOpen(c.PID, 0)
	if err != nil {
		return -1
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", c.PID))
	if err == nil {
		defer f.Close()
		if id, err := r.kernel.NamespaceID(int(f.Fd())); err == nil && id == c.Namespace {
			return fd
		}
	}
	closeFD(fd)
	return -1
}

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/hook/wire"
)

// Bounds of the hook socket.
const (
	maxConnections = 256             // more wait in the kernel's queue
	connectionTime = 2 * time.Second // for one Receive or one Send
)

// listenHook makes the hook socket. Anybody may connect: a rootless user's hook
// is an ordinary user here; what a caller may do is decided per request.
func listenHook(path string) (int, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return -1, fmt.Errorf("making the folder of the hook socket: %w", err)
	}
	_ = os.Remove(path)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Chmod(path, 0o666)
	}
	if err == nil {
		err = unix.Listen(fd, 1024)
	}
	if err != nil {
		closeFD(fd)
		return -1, fmt.Errorf("listening on %s: %w", path, err)
	}
	return fd, nil
}

// serveHook answers hooks until ctx is done.
func (r *registry) serveHook(ctx context.Context, listener int) {
	slots := make(chan struct{}, maxConnections)
	var from callers
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, 500); n <= 0 && (err == nil || errors.Is(err, unix.EINTR)) {
			continue
		}
		slots <- struct{}{}
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if err != nil {
			<-slots
			time.Sleep(10 * time.Millisecond) // out of descriptors, perhaps: let others finish
			continue
		}
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil || !from.admit(cred.Uid) {
			_ = wire.Send(fd, wire.Reply{Version: wire.Version, Code: wire.Full, Message: "too many connections of users other than root: try again"})
			unix.Close(fd)
			<-slots
			continue
		}
		go func() {
			defer func() { unix.Close(fd); from.leave(cred.Uid); <-slots }()
			r.serveOne(fd, cred)
		}()
	}
}

func (r *registry) serveOne(fd int, cred *unix.Ucred) {
	if err := wire.SetDeadline(fd, connectionTime); err != nil {
		return
	}
	data, fds, err := wire.Receive(fd)
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	reply := wire.Reply{Version: wire.Version, Code: wire.OK}
	log := r.log.WithFields(logrus.Fields{"uid": cred.Uid, "caller": cred.Pid})
	if err != nil {
		err = refuse(wire.BadRequest, "reading the request: %v", err)
	} else if err = r.checkCaller(fd, cred); err == nil {
		err = r.answer(data, fds, cred.Uid)
	}
	if err != nil {
		reply.Code, reply.Message = wire.Internal, err.Error()
		var refused refusal
		if errors.As(err, &refused) {
			reply.Code = refused.code
		}
		reply.Message, _, _ = strings.Cut(reply.Message, "\n")
		reply.Message = printable(reply.Message)
		log.WithField("code", reply.Code).Warn(reply.Message)
	}
	r.count.requests.WithLabelValues(string(reply.Code)).Inc()
	_ = wire.Send(fd, reply) // a hook that has gone away gave up: the runtime stops the container
}

// answer does what one message asks for.
func (r *registry) answer(data []byte, fds []int, uid uint32) error {
	var q wire.Request
	if err := wire.Decode(data, &q); err != nil {
		return refuse(wire.BadRequest, "the request: %v", err)
	}
	if q.Version != wire.Version {
		return refuse(wire.BadVersion, "the hook speaks version %d, the daemon version %d: install the same release of both", q.Version, wire.Version)
	}
	switch q.Op {
	case wire.OpEnded:
		if uid == 0 { // a look at every task is not for anybody to ask for; housekeeping looks soon
			r.reap() // the pidfd says when; this only says: look now
		}
		return nil
	case wire.OpBind:
		if len(fds) != 2 {
			return refuse(wire.BadRequest, "%d descriptors: a pidfd and a namespace are wanted", len(fds))
		}
		return r.bindFrom(q, fds[0], fds[1], uid)
	}
	return refuse(wire.BadRequest, "unknown operation %q", q.Op)
}

func (r *registry) bindFrom(q wire.Request, pidfd, nsfd int, uid uint32) error {
	if err := checkID(q.ID); err != nil {
		return err
	}
	pid, err := checkNamespace(pidfd, nsfd, uid)
	if err != nil {
		return err
	}
	id, err := r.kernel.NamespaceID(nsfd)
	if err != nil {
		return err
	}
	own, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return fmt.Errorf("keeping the pidfd: %w", err)
	}
	b := bindRequest{id: q.ID, namespace: id, pid: pid, pidfd: own, state: bpf.Armed}
	if b.asked, err = r.askedBy(q, uid); err != nil {
		closeFD(own)
		return err
	}
	if b.name = b.Where.Name; b.name == "" {
		b.name = b.Container
	}
	b.name = printable(b.name)
	_, err = r.bind(b)
	return err
}

// askedBy gathers what the policies of a hook's container are chosen by.
func (r *registry) askedBy(q wire.Request, uid uint32) (asked, error) {
	r.mu.Lock()
	conf := r.config
	r.mu.Unlock()
	a := asked{Annotations: q.Annotations, UID: uid}
	if a.Annotations == nil {
		a.Annotations = map[string]string{}
	}
	where, err := whereOf(q.Annotations)
	if err != nil {
		return a, err
	}
	if uid != 0 {
		a.Container = where.Name // the caller's own words
		return a, nil
	}
	a.Where, a.Container = where, where.Name
	stored := storage{conf.Images.Storage}
	if a.Container == "" {
		a.Container = stored.name(q.ID)
	}
	if conf.needsImage(a) {
		if a.Image, err = imageOf(append(slices.Clip(r.images), stored), q.ID); err != nil {
			return a, refuse(wire.Internal, "looking up the container's image: %v", err)
		}
	}
	return a, nil
}

// policiesOf is the names in an annotation.
func policiesOf(annotation string) []string {
	var out []string
	for _, name := range strings.Split(annotation, ",") {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// bind asks the daemon to bind the container's namespace and waits for its
// answer.
func bind(socket string, state *specs.State, until time.Time, more ...string) error {
	r := request(wire.OpBind, state, more...)
	if err := tooLong(r); err != nil {
		return err
	}
	if state.Pid <= 0 {
		return failure{exitState, fmt.Sprintf("the State has pid %d: the hook belongs into the stage createRuntime", state.Pid)}
	}
	pidfd, err := unix.PidfdOpen(state.Pid, 0)
	if err != nil {
		return failure{exitProcess, fmt.Sprintf("opening the container's init, pid %d: %v", state.Pid, err)}
	}
	defer unix.Close(pidfd)
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", state.Pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return failure{exitProcess, fmt.Sprintf("opening the mount namespace of pid %d: %v", state.Pid, err)}
	}
	defer unix.Close(ns)
	return ask(socket, r, until, pidfd, ns)
}

// tell gives the daemon the hint that the container has ended.
func tell(socket string, state *specs.State, until time.Time) error {
	return ask(socket, request(wire.OpEnded, state), until)
}

// request passes on only the annotations that the daemon reads: State may hold
// a megabyte of others.
func request(op string, state *specs.State, more ...string) wire.Request {
	r := wire.Request{Version: wire.Version, Op: op, ID: state.ID, PID: state.Pid, Annotations: map[string]string{}}
	known := slices.Concat(wire.NamespaceKeys(), wire.PodKeys(), wire.NameKeys(), more)
	for key, value := range state.Annotations {
		if strings.HasPrefix(key, "io.dunnage.") || slices.Contains(known, key) {
			r.Annotations[key] = value
		}
	}
	return r
}

// tooLong is an error if a value is longer than the daemon reads: without it
// the container might get a looser policy.
func tooLong(r wire.Request) error {
	for key, value := range r.Annotations {
		if len(value) > wire.MaxValue {
			return failure{exitBadRequest, fmt.Sprintf("the annotation %.100s has %d bytes: at most %d are read", key, len(value), wire.MaxValue)}
		}
	}
	return nil
}

func ask(socket string, r wire.Request, until time.Time, fds ...int) error {
	fd, err := dial(socket, until)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := wire.SetDeadline(fd, time.Until(until)); err != nil {
		return failure{exitInternal, err.Error()}
	}
	if err := wire.Send(fd, r, fds...); err != nil {
		return answerError("sending to", socket, err)
	}
	data, extra, err := wire.Receive(fd)
	for _, fd := range extra {
		unix.Close(fd)
	}
	if err != nil {
		return answerError("waiting for", socket, err)
	}
	var reply wire.Reply
	if err := wire.Decode(data, &reply); err != nil {
		return failure{exitProtocol, fmt.Sprintf("the daemon's answer: %v", err)}
	}
	if reply.Code == wire.OK {
		return nil
	}
	status, known := exitOfCode[reply.Code]
	if !known {
		status = exitProtocol
	}
	return failure{status, reply.Message}
}

func answerError(doing, socket string, err error) error {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ETIMEDOUT) {
		return failure{exitTimeout, fmt.Sprintf("the daemon does not answer on %s: is it stopped? try `systemctl restart dunnage`", socket)}
	}
	return failure{exitProtocol, fmt.Sprintf("%s the daemon on %s: %v", doing, socket, err)}
}

// dial connects. While the node boots or the daemon restarts it waits for the
// socket, but not beyond half of what time there is.
func dial(socket string, until time.Time) (int, error) {
	patience := time.Now().Add(time.Until(until) / 2)
	for {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return -1, failure{exitInternal, fmt.Sprintf("making a socket: %v", err)}
		}
		_ = wire.SetDeadline(fd, time.Until(until)) // also bounds a connect to a full queue
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket})
		if err == nil {
			return fd, nil
		}
		unix.Close(fd)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return -1, answerError("", socket, err)
		case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, unix.EINTR):
			return -1, failure{exitUnavailable, fmt.Sprintf("connecting to the daemon: %s: %v", filepath.Clean(socket), err)}
		case time.Now().After(patience):
			return -1, failure{exitUnavailable, fmt.Sprintf("the daemon is not running: %s: %v: try `systemctl start dunnage`", socket, err)}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

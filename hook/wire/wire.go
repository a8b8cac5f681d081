// Package wire is the protocol between the hook and the daemon: one JSON
// message each way over a unix SOCK_SEQPACKET socket, the request with two file
// descriptors. It holds types, limits and framing, and imports only the
// standard library and golang.org/x/sys/unix. The hook and the daemon may
// import it.
package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Version is the protocol's. A daemon refuses other ones by name.
const Version = 1

// MaxMessage is the size of the largest message, in bytes.
const MaxMessage = 64 << 10

// Socket is where the daemon listens by default.
const Socket = "/run/dunnage/hook.sock"

// What a request asks for.
const (
	OpBind  = "bind"  // bind the namespace to the policy, before the container's first instruction
	OpEnded = "ended" // a hint: the container has ended
)

// Annotation names the policies of a container, separated by commas; each is a
// layer.
const Annotation = "io.dunnage.policy"

// AnnotationInline carries a whole policy; AnnotationSignature, of an image only,
// its ed25519 signature in base64.
const (
	AnnotationInline    = Annotation + ".inline"
	AnnotationSignature = AnnotationInline + ".signature"
)

// Asks reports whether annotations ask for a policy: of every container, or
// (io.dunnage.policy/NAME) of one container of a pod.
func Asks(annotations map[string]string) bool {
	for key := range annotations {
		if key == Annotation || key == AnnotationInline || strings.HasPrefix(key, Annotation+"/") {
			return true
		}
	}
	return false
}

// MaxValue is the size of the longest annotation that the daemon is told, in
// bytes. A container with a longer one, of those that count, does not start.
const MaxValue = 16 << 10

// Config is what the hook must know without the daemon: the one file that it
// believes, written by the daemon.
type Config struct {
	Socket      string   `json:"socket"`
	Baseline    bool     `json:"baseline"`              // also of a container that asks for none the daemon must know
	FailOpen    []string `json:"failOpen,omitempty"`    // namespace/container, or container: may start without the daemon
	Annotations []string `json:"annotations,omitempty"` // further keys that the daemon reads
	WrittenBy   string   `json:"writtenBy,omitempty"`
}

// UnconfinedLog is where the hook writes an Unconfined, one a line.
const UnconfinedLog = "/run/dunnage/unconfined.jsonl"

// Unconfined is a container of the fail-open list that started while the daemon
// could not be reached.
type Unconfined struct {
	Time      time.Time `json:"time"`
	ID        string    `json:"id"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	PID       int       `json:"pid"`
	Why       string    `json:"why"`
}

// NamespaceKeys, PodKeys and NameKeys are the annotations in which runtimes say
// what the orchestrator calls a container: containerd's and CRI-O's, podman's.
func NamespaceKeys() []string {
	return []string{"io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"}
}

// PodKeys: see NamespaceKeys.
func PodKeys() []string { return []string{"io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"} }

// NameKeys: see NamespaceKeys.
func NameKeys() []string {
	return []string{"io.kubernetes.cri.container-name", "io.kubernetes.container.name", "io.podman.annotations.name"}
}

// Request is what the hook sends. With OpBind it carries two descriptors: a
// pidfd of the container's init and its open /proc/PID/ns/mnt.
type Request struct {
	Version     int               `json:"version"`
	Op          string            `json:"op"`
	ID          string            `json:"id"`  // container id as the runtime has it
	PID         int               `json:"pid"` // of the init, as the hook sees it; the pidfd counts
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Code says how a request ended.
type Code string

// The codes. Each has its own exit status of the hook (hook/exit.go).
const (
	OK            Code = "ok"
	BadRequest    Code = "bad-request"
	BadVersion    Code = "version"
	Refused       Code = "refused" // not this caller's container
	UnknownPolicy Code = "unknown-policy"
	InvalidPolicy Code = "invalid-policy"
	BadNamespace  Code = "namespace"
	Full          Code = "full"
	Internal      Code = "internal"
)

// Reply is the daemon's answer. Message is one line for the user.
type Reply struct {
	Version int    `json:"version"`
	Code    Code   `json:"code"`
	Message string `json:"message,omitempty"`
}

// Decode reads one JSON value strictly: no unknown key, nothing behind it.
func Decode(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF { // More takes a stray } for an end
		return errors.New("more than one value")
	}
	return nil
}

// Send writes one message with descriptors.
func Send(fd int, v any, fds ...int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > MaxMessage {
		return fmt.Errorf("message of %d bytes: at most %d are possible", len(b), MaxMessage)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		if err = unix.Sendmsg(fd, b, oob, nil, unix.MSG_NOSIGNAL); err != unix.EINTR {
			return err
		}
	}
}

// Receive reads one message and the descriptors that came with it, which the
// caller closes even if there is an error. It waits no longer than the socket's
// receive time-out.
func Receive(fd int) (data []byte, fds []int, err error) {
	buf := make([]byte, MaxMessage+1)
	oob := make([]byte, unix.CmsgSpace(4*4))
	var n, oobn, flags int
	for {
		if n, oobn, flags, _, err = unix.Recvmsg(fd, buf, oob, unix.MSG_CMSG_CLOEXEC); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return nil, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	for i := range messages {
		more, perr := unix.ParseUnixRights(&messages[i])
		if perr != nil {
			err = perr
			continue
		}
		fds = append(fds, more...)
	}
	switch {
	case err != nil:
	case n == 0 && oobn == 0:
		err = errors.New("the other side closed the connection")
	case n > MaxMessage || flags&unix.MSG_TRUNC != 0:
		err = fmt.Errorf("message of more than %d bytes", MaxMessage)
	case flags&unix.MSG_CTRUNC != 0:
		err = errors.New("too many descriptors")
	}
	return buf[:n], fds, err
}

// SetDeadline bounds how long one Send or Receive may take.
func SetDeadline(fd int, d time.Duration) error {
	tv := unix.NsecToTimeval(int64(max(d, time.Millisecond)))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return err
	}
	return unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv)
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/policy"
)

// report is an event as it is written: one JSON line.
type report struct {
	ID         uint64    `json:"id"`
	Time       time.Time `json:"time"`
	Container  string    `json:"container"`
	Name       string    `json:"name,omitempty"`
	Instance   uint64    `json:"instance"`
	PID        int       `json:"pid"`
	TID        int       `json:"tid"`
	Comm       string    `json:"comm"`
	Executable string    `json:"executable,omitempty"` // empty: the exec that brought the task in
	Programs   []string  `json:"programs,omitempty"`   // all that the task executes: script and interpreter
	Inherited  []string  `json:"inherited,omitempty"`
	Op         string    `json:"op"`
	Access     string    `json:"access"`
	Path       string    `json:"path"`
	PathBytes  []byte    `json:"pathBytes,omitempty"` // base64, if the path is not UTF-8
	Partial    bool      `json:"partial,omitempty"`   // the beginning of the path is missing
	Verdict    string    `json:"verdict"`             // denied, audit (allowed, but an audit policy denies), unconfined (unconfined.go)
	Reason     string    `json:"reason"`
	Policy     string    `json:"policy,omitempty"`
	Rule       string    `json:"rule,omitempty"` // effect and place: "only /etc/…/pg.yaml:4:9"
}

// describe turns a kernel event into a report; c may be nil.
func describe(ev bpf.Event, c *container) report {
	r := report{ID: ev.ID, Time: ev.Time.UTC(), Instance: uint64(ev.Instance), PID: ev.PID, TID: ev.TID, Comm: ev.Comm,
		Programs: ev.Subject.Programs, Inherited: ev.Subject.Inherited, Op: ev.Op, Access: ev.Access.String(),
		Path: ev.Path, Partial: ev.Partial, Verdict: "denied", Reason: ev.Reason.String()}
	if n := len(ev.Subject.Programs); n > 0 {
		r.Executable = ev.Subject.Programs[n-1]
	}
	if !ev.Denied {
		r.Verdict = "audit"
	}
	if !utf8.ValidString(ev.Path) {
		r.PathBytes = []byte(ev.Path)
	}
	if c == nil {
		return r
	}
	r.Container, r.Name = c.ID, c.Name
	if ev.Reason != policy.ReasonRule || len(c.Layers) == 0 || ev.Access >= policy.NumKinds {
		return r
	}
	v := policy.Decide(c.Layers, ev.Subject, ev.Path, ev.Access)
	r.Reason, r.Policy = v.Reason.String(), c.Layers[v.Layer].Name
	r.Rule = ruleName(v)
	return r
}

// ruleName names what decided: a rule by effect and place, or the default.
func ruleName(v policy.Verdict) string {
	if v.Rule == nil {
		return "default"
	}
	return fmt.Sprintf("%s %s", v.Rule.Effect, v.Rule.Pos)
}

// maxLog is the size at which the event log is turned over, in bytes; one old
// file is kept.
const maxLog = 16 << 20

// eventLog writes events to a file and to whoever follows.
type eventLog struct {
	path string

	mu        sync.Mutex
	file      *os.File
	size      int64
	followers map[chan []byte]bool
}

func openEventLog(runDir string) (*eventLog, error) {
	l := &eventLog{path: filepath.Join(runDir, "events.jsonl"), followers: map[chan []byte]bool{}}
	return l, l.open()
}

func (l *eventLog) open() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("opening the event log: %w", err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return fmt.Errorf("opening the event log: %w", err)
	}
	l.file, l.size = f, st.Size()
	return nil
}

// add writes one report. A follower that does not keep up loses lines; the file
// does not wait for it.
func (l *eventLog) add(r report) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for f := range l.followers {
		select {
		case f <- b.Bytes():
		default:
		}
	}
	if l.size > maxLog {
		l.file.Close()
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			return err
		}
		if err := l.open(); err != nil {
			return err
		}
	}
	n, err := l.file.Write(b.Bytes())
	l.size += int64(n)
	return err
}

// follow returns a channel of the lines to come, and its end.
func (l *eventLog) follow() (<-chan []byte, func()) {
	c := make(chan []byte, 1024)
	l.mu.Lock()
	l.followers[c] = true
	l.mu.Unlock()
	return c, func() {
		l.mu.Lock()
		delete(l.followers, c)
		l.mu.Unlock()
	}
}

// handle takes one event from the kernel.
func (r *registry) handle(ev bpf.Event, log *eventLog) {
	c := r.get(ev.Instance)
	if ev.Enforced {
		r.enforced(ev.Instance)
		return
	}
	said := describe(ev, c)
	r.count.events.WithLabelValues(said.Verdict, said.Reason).Inc()
	if err := log.add(said); err != nil {
		r.log.WithError(err).Error("writing an event")
	}
}

// enforced notes that a container's entrypoint runs, and labels what else is in
// its namespace (a createContainer hook's child).
func (r *registry) enforced(i bpf.Instance) {
	r.mu.Lock()
	c := r.containers[i]
	if c != nil {
		c.state = bpf.Enforced
	}
	r.mu.Unlock()
	if c == nil {
		return
	}
	if n, err := r.kernel.Label(i); err != nil {
		r.log.WithError(err).WithFields(c.fields()).Error("labelling the tasks that were there")
	} else if n > 0 {
		r.log.WithFields(c.fields()).WithField("tasks", n).Info("labelled tasks that were there before the entrypoint")
	}
}

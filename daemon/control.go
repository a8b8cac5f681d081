package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/policy"
)

// The control socket speaks HTTP with JSON; only root can open it. Its paths
// begin with /v1/ and stay as they are while that is so.

// listenPrivate listens on a socket that only root can open.
func listenPrivate(path string) (net.Listener, error) {
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return l, nil
}

// psLine is one container as `dunnage ps` shows it.
type psLine struct {
	ID       string    `json:"id"`
	Name     string    `json:"name,omitempty"`
	Instance uint64    `json:"instance"`
	PID      int       `json:"pid"`
	Policies []string  `json:"policies"`
	Mode     string    `json:"mode"`  // enforce, audit, mixed
	State    string    `json:"state"` // armed, enforced, partial, detached, ended (tasks still live)
	Tasks    int       `json:"tasks"`
	Events   uint64    `json:"events"`
	Muted    uint64    `json:"muted"` // events that were only counted
	Started  time.Time `json:"started"`
}

// attachRequest asks for a policy on a running container.
type attachRequest struct {
	ID       string           `json:"id"`
	Name     string           `json:"name"`
	PID      int              `json:"pid"`   // of its init
	Where    policy.Container `json:"where"` // what an orchestrator calls it
	Policies []string         `json:"policies"`
}

type failureReply struct {
	Error string `json:"error"`
}

// maxQuestion is the size of the largest request to the control socket, in bytes.
const maxQuestion = 1 << 20

// controlHandler answers what the commands ask.
func (d *daemon) controlHandler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(*http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
			req.Body = http.MaxBytesReader(w, req.Body, maxQuestion)
			reply, err := f(req)
			if err != nil {
				w.WriteHeader(http.StatusUnprocessableEntity)
				reply = failureReply{err.Error()}
			}
			_ = json.NewEncoder(w).Encode(reply)
		})
	}
	handle("GET /v1/ps", func(*http.Request) (any, error) { return d.registry.ps() })
	handle("GET /v1/cache", func(*http.Request) (any, error) { return d.registry.cache(), nil })
	handle("POST /v1/attach", func(req *http.Request) (any, error) {
		var a attachRequest
		if err := json.NewDecoder(req.Body).Decode(&a); err != nil {
			return nil, err
		}
		return d.registry.attach(a)
	})
	handle("POST /v1/detach", func(req *http.Request) (any, error) { return nil, d.registry.detach(req.URL.Query().Get("container")) })
	handle("POST /v1/reload", func(*http.Request) (any, error) { return nil, d.reload() })
	handle("POST /v1/explain", func(req *http.Request) (any, error) {
		var q question
		if err := json.NewDecoder(req.Body).Decode(&q); err != nil {
			return nil, err
		}
		return d.registry.explain(q)
	})
	handle("POST /v1/stop", func(req *http.Request) (any, error) {
		if req.URL.Query().Get("release") == "true" {
			if err := d.registry.kernel.Release(); err != nil {
				return nil, err
			}
			d.log.Warn("enforcement is off: containers that run are no longer confined")
		}
		time.AfterFunc(100*time.Millisecond, d.end) // after the answer
		return nil, nil
	})
	mux.HandleFunc("GET /v1/events", d.serveEvents)
	return mux
}

// serveHTTP answers on a private socket until ctx is done.
func (d *daemon) serveHTTP(ctx context.Context, l net.Listener, h http.Handler) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		d.log.WithError(err).WithField("socket", l.Addr()).Error("answering")
	}
}

// serveEvents sends what the log holds and, with follow, what comes.
func (d *daemon) serveEvents(w http.ResponseWriter, req *http.Request) {
	lines, end := d.events.follow()
	defer end()
	for _, path := range []string{d.events.path + ".1", d.events.path} {
		if data, err := os.ReadFile(path); err == nil {
			_, _ = w.Write(data)
		}
	}
	if req.URL.Query().Get("follow") != "true" {
		return
	}
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case <-req.Context().Done():
			return
		case line := <-lines:
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}
}

func (r *registry) ps() ([]psLine, error) {
	tasks, err := r.kernel.Tasks()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []psLine{}
	for _, c := range r.containers {
		counts, _ := r.kernel.Counts(c.Instance)
		line := psLine{ID: c.ID, Name: c.Name, Instance: uint64(c.Instance), PID: c.PID, Policies: c.Policies, Mode: modeOf(c.Layers),
			State: c.word(), Tasks: tasks[c.Instance], Events: counts.Events, Muted: counts.Muted, Started: c.Started}
		out = append(out, line)
	}
	slices.SortFunc(out, func(a, b psLine) int { return a.Started.Compare(b.Started) })
	return out, nil
}

// word is the container's state as people are told it; r.mu is held.
func (c *container) word() string {
	switch {
	case c.ended:
		return "ended"
	case c.Detached:
		return "detached"
	case c.Partial:
		return "partial"
	}
	return c.state.String()
}

func modeOf(layers []*policy.Policy) string {
	audit := 0
	for _, p := range layers {
		if p.Audit {
			audit++
		}
	}
	switch {
	case len(layers) == 0:
		return "unknown"
	case audit == 0:
		return "enforce"
	case audit == len(layers):
		return "audit"
	}
	return "mixed"
}

// attach binds a running container and labels its tasks.
func (r *registry) attach(a attachRequest) (psLine, error) {
	pidfd, nsfd, err := openProcess(a.PID)
	if err != nil {
		return psLine{}, err
	}
	defer closeFD(nsfd)
	pid, err := checkNamespace(pidfd, nsfd, 0)
	if err != nil {
		closeFD(pidfd)
		return psLine{}, err
	}
	ns, err := r.kernel.NamespaceID(nsfd)
	if err != nil {
		closeFD(pidfd)
		return psLine{}, err
	}
	c, err := r.bind(bindRequest{id: a.ID, name: a.Name, asked: asked{Names: a.Policies, Where: a.Where}, namespace: ns, pid: pid, pidfd: pidfd, state: bpf.Enforced})
	if err != nil {
		return psLine{}, err
	}
	// Tasks that are born from one that was passed over are found in the next
	// round; when a round labels nobody, all are.
	for range 20 {
		n, err := r.kernel.Label(c.Instance)
		if err != nil {
			return psLine{}, err
		}
		if n == 0 {
			return psLine{ID: c.ID, Name: c.Name, Instance: uint64(c.Instance), PID: c.PID, Policies: c.Policies, State: c.state.String()}, nil
		}
	}
	r.mu.Lock()
	c.Partial = true
	r.mu.Unlock()
	return psLine{}, errors.New("the container makes tasks faster than they can be labelled: it is confined in part only; attach again")
}

// detach takes the policies off a running container.
func (r *registry) detach(ref string) error {
	c, err := r.find(ref)
	if err != nil {
		return err
	}
	open := openPolicy("detached")
	table, err := r.install([]*policy.Policy{open})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.put(c, table, []*policy.Policy{open}); err != nil {
		return err
	}
	c.Policies, c.Detached = nil, true
	r.log.WithFields(c.fields()).Warn("detached: no longer confined")
	return r.store.save(c)
}

// client is the commands' side of the control socket.
type client struct {
	http http.Client
	path string
}

func newClient(runDir string) *client { return clientAt(filepath.Join(runDir, "control.sock")) }

func clientAt(path string) *client {
	return &client{path: path, http: http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "unix", path)
		},
	}}}
}

// call sends a request and decodes the answer into reply, unless that is nil.
func (c *client) call(method, path string, body, reply any) error {
	resp, err := c.open(method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if reply == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(reply)
}

// open sends a request and returns the answer's body for reading.
func (c *client) open(method, path string, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequest(method, "http://dunnage"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, withHint(fmt.Errorf("asking the daemon on %s: %w", c.path, errors.Unwrap(err)), "is it running, and are you root? `systemctl status dunnage`")
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		var f failureReply
		data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		if json.Unmarshal(data, &f) != nil || f.Error == "" {
			f.Error = resp.Status
		}
		return nil, errors.New(f.Error)
	}
	return resp, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/hook/wire"
	"github.com/dunnage-project/dunnage/policy"
)

// kernel is what the daemon needs of *bpf.Engine.
type kernel interface {
	Install(*policy.Automaton) (bpf.Table, error)
	Uninstall(bpf.Table) error
	Bind(bpf.Binding) (bpf.Instance, error)
	Rebind(bpf.Instance, bpf.Table) error
	Remove(bpf.Instance) error
	Bindings() ([]bpf.Binding, error)
	NamespaceID(fd int) (bpf.NamespaceID, error)
	Label(bpf.Instance) (int, error)
	Tasks() (map[bpf.Instance]int, error)
	Counts(bpf.Instance) (bpf.Counts, error)
	ContainerRows() int
	CacheOff() string
	CacheEntries() int
	CacheCounts(bpf.Instance) (bpf.CacheCounts, error)
	CacheTotals() bpf.CacheCounts
	Totals() (bpf.Totals, error)
	Read(context.Context, func(bpf.Event)) error
	Sweep() error
	Release() error
	Close() error
}

// container is one instance: what the kernel holds a row for.
type container struct {
	Instance  bpf.Instance     `json:"instance"`
	Namespace bpf.NamespaceID  `json:"namespace"`
	ID        string           `json:"id"`
	Name      string           `json:"name,omitempty"`
	Asked     asked            `json:"asked"` // what its policies are chosen by, again at a reload
	PID       int              `json:"pid"`   // of the init
	Policies  []string         `json:"policies"`
	Layers    []*policy.Policy `json:"layers"` // as compiled into the table in force
	Started   time.Time        `json:"started"`
	// Partial: attached to a running container and not yet sure that each of
	// its tasks is labelled.
	Partial bool `json:"partial,omitempty"`
	// Detached: its policies were taken off; everything is allowed.
	Detached bool `json:"detached,omitempty"`

	table bpf.Table
	state bpf.BindingState
	pidfd int // -1: the init has ended, or was never seen
	ended bool
}

// refusal is an error with the code that the hook is told.
type refusal struct {
	code wire.Code
	error
}

func (r refusal) Unwrap() error { return r.error }

func refuse(code wire.Code, format string, args ...any) error {
	return refusal{code, fmt.Errorf(format, args...)}
}

// registry is what is bound, the policies, and the way into the kernel. Its
// lock is never held while a policy is compiled.
type registry struct {
	kernel kernel
	store  *store
	log    *logrus.Entry
	watch  *watcher
	images []imageSource // besides containers/storage
	count  counters

	mu         sync.Mutex
	config     *nodeConfig
	policies   *policy.Set
	containers map[bpf.Instance]*container
}

// subject of a bind: checked, see caller.go.
type bindRequest struct {
	asked
	id, name  string
	namespace bpf.NamespaceID
	pid       int
	pidfd     int // the registry's from now on
	state     bpf.BindingState
}

// layersFor chooses the policies of one container and looks them up. No layers:
// it is to run without a policy.
func (r *registry) layersFor(set *policy.Set, conf *nodeConfig, a asked) ([]*policy.Policy, error) {
	chosen, err := conf.choose(a)
	if err != nil {
		return nil, err
	}
	var layers []*policy.Policy
	for _, name := range chosen.names {
		p, err := set.Lookup(name)
		switch {
		case errors.Is(err, policy.ErrUnknown):
			return nil, refusal{wire.UnknownPolicy, err}
		case err != nil:
			return nil, refusal{wire.InvalidPolicy, err}
		}
		layers = append(layers, p.For(a.Where)...)
	}
	for _, text := range chosen.inline {
		p, err := text.parse()
		if err != nil {
			return nil, err
		}
		layers = append(layers, p.For(a.Where)...)
	}
	return layers, nil
}

func namesOf(layers []*policy.Policy) []string {
	var out []string
	for _, p := range layers {
		out = append(out, p.Name)
	}
	return out
}

// openPolicy allows everything: what a container has whose policies are taken
// off while it runs, since a label can't be taken off a task.
func openPolicy(name string) *policy.Policy {
	p := &policy.Policy{Name: name, Audit: true, Mounts: true, MemfdExec: true}
	for k := range p.Default {
		p.Default[k] = true
	}
	return p
}

// install compiles layers and puts the table into the kernel.
func (r *registry) install(layers []*policy.Policy) (bpf.Table, error) {
	a, err := policy.Compile(layers)
	if err != nil {
		return 0, refusal{wire.InvalidPolicy, err}
	}
	t, err := r.kernel.Install(a)
	if errors.Is(err, bpf.ErrHeapFull) {
		return 0, refusal{wire.Full, err}
	}
	return t, err
}

// bind gives a namespace its policies. It answers when the kernel holds them;
// nil without an error: no policy applies.
// The pidfd is taken over, also when there is an error.
func (r *registry) bind(q bindRequest) (*container, error) {
	keep := false
	defer func() {
		if !keep {
			closeFD(q.pidfd)
		}
	}()
	r.mu.Lock()
	set, conf := r.policies, r.config
	for _, c := range r.containers {
		if c.Namespace == q.namespace && !c.ended {
			r.mu.Unlock()
			if c.ID == q.id && c.PID == q.pid && slices.Equal(c.Asked.Names, q.Names) && maps.Equal(c.Asked.Annotations, q.Annotations) {
				return c, nil // asked twice: prestart and createRuntime
			}
			return nil, refuse(wire.BadNamespace, "the mount namespace belongs to container %s already: containers that share one can't have policies of their own", c.ID)
		}
	}
	err := r.mayHold(q.UID)
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}

	layers, err := r.layersFor(set, conf, q.asked)
	if err != nil {
		return nil, err
	}
	if len(layers) == 0 && q.Annotations == nil {
		return nil, refuse(wire.UnknownPolicy, "no policy is named: write the name of one in the annotation %s", wire.Annotation)
	}
	if len(layers) == 0 {
		r.log.WithFields(logrus.Fields{"container": q.id, "name": q.name}).Debug("no policy applies: it runs unconfined")
		return nil, nil
	}
	table, err := r.install(layers)
	if err != nil {
		return nil, err
	}
	c := &container{Namespace: q.namespace, ID: q.id, Name: q.name, Asked: q.asked, PID: q.pid, Policies: namesOf(layers), Layers: layers,
		Started: time.Now().UTC(), table: table, state: q.state, pidfd: q.pidfd}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.mayHold(q.UID); err != nil { // others may have started meanwhile
		r.uninstall(table)
		return nil, err
	}
	c.Instance, err = r.kernel.Bind(bpf.Binding{Namespace: q.namespace, Init: q.pid, Table: table, State: q.state})
	if err != nil {
		r.uninstall(table)
		switch {
		case errors.Is(err, bpf.ErrContainersFull):
			return nil, refusal{wire.Full, err}
		case errors.Is(err, bpf.ErrBound):
			return nil, refusal{wire.BadNamespace, err}
		}
		return nil, err
	}
	if err := r.store.save(c); err != nil {
		r.forget(c)
		return nil, fmt.Errorf("writing down the container: %w", err)
	}
	r.containers[c.Instance] = c
	keep = true
	r.watch.add(c.pidfd, c.Instance)
	r.log.WithFields(c.fields()).Info("bound")
	return c, nil
}

func (c *container) fields() logrus.Fields {
	return logrus.Fields{"container": c.ID, "name": c.Name, "instance": uint64(c.Instance), "policies": c.Policies, "pid": c.PID}
}

// forget takes a container out of the kernel; the lock is held.
func (r *registry) forget(c *container) {
	if err := r.kernel.Remove(c.Instance); err != nil {
		r.log.WithError(err).WithFields(c.fields()).Error("removing from the kernel")
		return
	}
	r.uninstall(c.table)
	r.store.remove(c.Instance)
	delete(r.containers, c.Instance)
	closeFD(c.pidfd)
	c.pidfd = -1
}

func (r *registry) uninstall(t bpf.Table) {
	if err := r.kernel.Uninstall(t); err != nil {
		r.log.WithError(err).Error("freeing a table")
	}
}

// reload puts new policies in force: for containers that start, and at once for
// every task of those that run. A container whose policies can't be read or
// compiled any more keeps the ones that it has; that is the error.
func (r *registry) reload(set *policy.Set) error {
	r.mu.Lock()
	conf := r.config
	r.mu.Unlock()
	return r.reconfigure(set, conf)
}

// reconfigure is reload with another configuration.
func (r *registry) reconfigure(set *policy.Set, conf *nodeConfig) error {
	r.mu.Lock()
	r.policies, r.config = set, conf
	var running []*container
	for _, c := range r.containers {
		running = append(running, c)
	}
	r.mu.Unlock()
	var errs []error
	for _, c := range running {
		if c.Detached || len(c.Layers) == 0 || c.Asked.Annotations == nil && c.Asked.Names == nil {
			continue // taken off; or adopted without its file: nothing to derive a policy from
		}
		if err := r.renew(c, set, conf); err != nil {
			errs = append(errs, fmt.Errorf("container %s keeps its policy: %w", c.ID, err))
		}
	}
	return errors.Join(errs...)
}

func (r *registry) renew(c *container, set *policy.Set, conf *nodeConfig) error {
	layers, err := r.layersFor(set, conf, c.Asked)
	if err != nil {
		return err
	}
	if len(layers) == 0 {
		layers = []*policy.Policy{openPolicy("none")}
	}
	table, err := r.install(layers)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.put(c, table, layers); err != nil {
		return err
	}
	if err := r.store.save(c); err != nil {
		return fmt.Errorf("in force, but not written down: %w", err)
	}
	return nil
}

// put makes an installed table the one in force for a container and lets the
// old one go. The lock is held.
func (r *registry) put(c *container, table bpf.Table, layers []*policy.Policy) error {
	if r.containers[c.Instance] != c {
		r.uninstall(table)
		return fmt.Errorf("container %s has ended", c.ID)
	}
	if table == c.table {
		c.Layers, c.Policies = layers, namesOf(layers)
		r.uninstall(table) // it was counted once more
		return nil
	}
	if err := r.kernel.Rebind(c.Instance, table); err != nil {
		r.uninstall(table)
		return err
	}
	old := c.table
	c.table, c.Layers, c.Policies = table, layers, namesOf(layers)
	r.uninstall(old)
	return nil
}

// find returns the live container with an id, a name, or a unique prefix of an
// id. A user may call his containers what he likes: what several are called is
// none, and an id that root's container has is root's.
func (r *registry) find(ref string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ofRoot, byID, byName, byPrefix []*container
	for _, c := range r.containers {
		switch {
		case c.ID == ref && c.Asked.UID == 0:
			ofRoot = append(ofRoot, c)
		case c.ID == ref:
			byID = append(byID, c)
		case c.Name == ref && ref != "":
			byName = append(byName, c)
		case len(ref) >= 4 && strings.HasPrefix(c.ID, ref):
			byPrefix = append(byPrefix, c)
		}
	}
	for _, found := range [][]*container{ofRoot, byID, byName, byPrefix} {
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0], nil
		}
		return nil, fmt.Errorf("%d confined containers are called %q, or begin with it: give a whole id", len(found), ref)
	}
	return nil, fmt.Errorf("no confined container %q", ref)
}

// get returns a container by instance, or nil.
func (r *registry) get(i bpf.Instance) *container {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.containers[i]
}

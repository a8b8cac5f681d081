package bpf

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/dunnage-project/dunnage/policy"
)

// What Install and Bind refuse, so that the caller can say it in its own words.
var (
	ErrHeapFull       = errors.New("the table heap is full")
	ErrContainersFull = errors.New("all container rows are in use")
	ErrBound          = errors.New("the mount namespace is bound already")
	ErrNoInstance     = errors.New("no such instance")
)

// Engine is the loaded kernel part. Its methods may be called from any
// goroutine. One Engine at a time may write: the daemon holds a lock file.
type Engine struct {
	opts  Options
	coll  *ebpf.Collection
	links []link.Link

	close sync.Once
	mu    sync.Mutex
	heap  memory // cells
	rows  memory // struct container
	node  memory // struct node

	tallies  memory      // struct tally, as many as rows
	ended    CacheCounts // of instances that are gone
	before   Totals      // events of instances that are gone
	cacheOff string      // why there is no cache
	reloads  uint64      // the kernel part's number of this name
	space    *space
	tables   map[Table]*installed
	fence    *ebpf.Map
}

// installed is one table in the heap.
type installed struct {
	span
	digest [32]byte
	count  int // Install minus Uninstall, plus one per row when adopted
}

func newEngine(o Options, coll *ebpf.Collection) (*Engine, error) {
	e := &Engine{opts: o, coll: coll, tables: map[Table]*installed{}}
	var err error
	for _, m := range []struct {
		to   *memory
		name string
	}{{&e.heap, kernelMapHeap}, {&e.rows, kernelMapContainers}, {&e.node, kernelMapNode}, {&e.tallies, kernelMapTallies}} {
		if *m.to, err = mapMemory(coll.Maps[m.name]); err != nil {
			return nil, err
		}
	}
	if e.node.load64(nodeSeed) == 0 {
		seed, err := randomSeed()
		if err != nil {
			return nil, err
		}
		e.node.store64(nodeSeed, seed)
	}
	e.reloads = e.node.add64(nodeLoads) << 32
	if err := e.reloaded(); err != nil {
		return nil, err
	}
	if e.fence, err = newFence(); err != nil {
		return nil, err
	}
	e.adoptTables()
	return e, nil
}

// adoptTables finds the tables that rows point at; what else is in the heap
// belonged to nobody and is free.
func (e *Engine) adoptTables() {
	var used []span
	for row := range e.eachRow() {
		t := Table(e.rows.load64(row + rowTable))
		if in := e.tables[t]; in != nil {
			in.count++
			continue
		}
		at := uint32(t)
		in := &installed{span: span{at, e.heap.load32(int(at)*cellBytes + 52)}, count: 1}
		copy(in.digest[:], e.heap[int(at)*cellBytes+8:])
		e.tables[t] = in
		used = append(used, in.span)
	}
	e.space = newSpace(uint32(len(e.heap)/cellBytes), used)
}

// Close lets go of this process's hold. What is pinned stays in force. Closing
// again does nothing.
func (e *Engine) Close() error {
	var errs []error
	e.close.Do(func() {
		for _, l := range e.links {
			errs = append(errs, l.Close())
		}
		errs = append(errs, e.heap.close(), e.rows.close(), e.node.close(), e.tallies.close(), e.fence.Close())
		e.coll.Close()
	})
	return errors.Join(errs...)
}

// Install puts an automaton into the kernel's heap, where nothing points at it
// yet. An automaton with the digest of one that is there already gives that
// table, counted once more. Error: ErrHeapFull, or what the tables can't hold.
func (e *Engine) Install(a *policy.Automaton) (Table, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for t, in := range e.tables {
		if in.digest == a.Digest {
			in.count++
			return t, nil
		}
	}
	cells, err := layTable(a, 0)
	if err != nil {
		return 0, fmt.Errorf("laying out the table: %w", err)
	}
	at, err := e.space.take(uint32(len(cells)))
	if err != nil {
		return 0, fmt.Errorf("installing the table: %w", err)
	}
	if cells, err = layTable(a, at.first); err != nil {
		return 0, fmt.Errorf("laying out the table: %w", err)
	}
	generation := e.node.add64(nodeTables)
	t := Table(generation<<32 | uint64(at.first))
	for i := range cells {
		copy(e.heap[(int(at.first)+i)*cellBytes:], cells[i][:])
	}
	e.heap.store64(int(at.first)*cellBytes, uint64(t))
	e.tables[t] = &installed{span: at, digest: a.Digest, count: 1}
	return t, nil
}

// Uninstall drops one count of a table and frees it with the last, after every
// program that may still read it has ended.
func (e *Engine) Uninstall(t Table) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	in := e.tables[t]
	if in == nil {
		return fmt.Errorf("table %#x is not installed", uint64(t))
	}
	if in.count--; in.count > 0 {
		return nil
	}
	delete(e.tables, t)
	e.heap.store64(int(in.first)*cellBytes, 0) // whoever still points here is denied
	if err := e.wait(); err != nil {
		return err // the cells stay taken: never reused while somebody may read them
	}
	e.space.give(in.span)
	return nil
}

// Tables returns every installed table and its automaton's digest.
func (e *Engine) Tables() (map[Table][32]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make(map[Table][32]byte, len(e.tables))
	for t, in := range e.tables {
		out[t] = in.digest
	}
	return out, nil
}

// reloaded makes every label look at its container's row again. It is called
// before anything is attached, and after a row's table has changed.
func (e *Engine) reloaded() error {
	e.reloads++
	if err := e.coll.Variables[kernelVarReloads].Set(e.reloads); err != nil {
		return fmt.Errorf("telling the kernel part of a reload: %w", err)
	}
	return nil
}

// newFence returns a map whose update waits for every BPF program that runs
// now: the kernel waits for an RCU grace period after a change of a map of maps
// (maybe_wait_bpf_programs, kernel/bpf/syscall.c).
func newFence() (*ebpf.Map, error) {
	inner := &ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	return ebpf.NewMap(&ebpf.MapSpec{Name: "fence", Type: ebpf.ArrayOfMaps, KeySize: 4, MaxEntries: 1, InnerMap: inner})
}

// wait returns when every program that was running has ended.
func (e *Engine) wait() error {
	inner, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("waiting for readers: %w", err)
	}
	defer inner.Close()
	if err := e.fence.Put(uint32(0), inner); err != nil {
		return fmt.Errorf("waiting for readers: %w", err)
	}
	return nil
}

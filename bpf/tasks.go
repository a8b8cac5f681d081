package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// seen is one record of the task iterators.
type seen struct {
	instance Instance
	pid, tid int
}

// iterate runs a task iterator to its end.
func (e *Engine) iterate(program string) ([]seen, error) {
	it, err := link.AttachIter(link.IterOptions{Program: e.coll.Programs[program]})
	if err != nil {
		return nil, fmt.Errorf("looking at the tasks: %w", err)
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return nil, fmt.Errorf("looking at the tasks: %w", err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("looking at the tasks: %w", err)
	}
	var out []seen
	for ; len(b) >= 16; b = b[16:] {
		out = append(out, seen{
			Instance(binary.LittleEndian.Uint64(b)),
			int(binary.LittleEndian.Uint32(b[8:])),
			int(binary.LittleEndian.Uint32(b[12:])),
		})
	}
	return out, nil
}

// Label labels the tasks that are in the namespace of an enforced binding and
// carry no label, and returns how many there were.
func (e *Engine) Label(i Instance) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	tasks, err := e.iterate(kernelProgLabelTasks)
	n := 0
	for _, t := range tasks {
		if t.instance == i {
			n++
		}
	}
	return n, err
}

// Tasks counts the live tasks (threads) that carry each instance's label,
// wherever they are. An instance that is not in the result has none and, once
// it is unbound, gets none.
func (e *Engine) Tasks() (map[Instance]int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.births()
	tasks, err := e.iterate(kernelProgListTasks)
	if err != nil {
		return nil, err
	}
	out := map[Instance]int{}
	for _, t := range tasks {
		out[t.instance]++
	}
	// A task that lives can be missed only if it was born while we looked: its
	// parent was passed over or had died. Then births has moved, and the
	// instance counts as alive; the caller asks again later.
	for i, n := range e.births() {
		if out[i] == 0 && n != before[i] {
			out[i] = 1
		}
	}
	return out, nil
}

func (e *Engine) births() map[Instance]uint64 {
	out := map[Instance]uint64{}
	for row := range e.eachRow() {
		out[Instance(e.rows.load64(row+rowInstance))] = e.rows.load64(row + rowBirths)
	}
	return out
}

// Sweep frees interned programs that no label has named for two rounds. Every
// exec and every fresh derivation of a mask marks the programs it names; the
// sweep marks those of all living labels first.
func (e *Engine) Sweep() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	round := uint32(e.node.add64(nodeSweep))
	if _, err := e.iterate(kernelProgMarkPrograms); err != nil {
		return err
	}
	for name, m := range map[string]*ebpf.Map{"": e.coll.Maps[kernelMapPrograms], "long ": e.coll.Maps[kernelMapLongPrograms]} {
		value := make([]byte, m.ValueSize())
		var key uint64
		var old []uint64
		for it := m.Iterate(); it.Next(&key, &value); {
			if round-binary.LittleEndian.Uint32(value[4:]) > 2 {
				old = append(old, key)
			}
		}
		for _, key := range old {
			if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("sweeping %sprograms: %w", name, err)
			}
		}
	}
	return nil
}

// program returns the path of an interned program; false if it is gone.
func (e *Engine) program(key uint64) (string, bool) {
	m := e.coll.Maps[kernelMapPrograms]
	if key&longKey != 0 {
		m = e.coll.Maps[kernelMapLongPrograms]
	}
	value := make([]byte, m.ValueSize())
	if key == 0 || m.Lookup(key, value) != nil {
		return "", false
	}
	n := min(int(binary.LittleEndian.Uint32(value)), len(value)-8)
	return string(value[8 : 8+n]), true
}

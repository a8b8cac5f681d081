package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/cilium/ebpf"
)

// eachRow yields the offset of every row in use.
func (e *Engine) eachRow() iter.Seq[int] {
	return func(yield func(int) bool) {
		for row := 0; row+rowBytes <= e.rowsEnd(); row += rowBytes {
			if e.rows.load64(row+rowInstance) != 0 && !yield(row) {
				return
			}
		}
	}
}

// ContainerRows is how many instances the kernel part can hold at a time.
func (e *Engine) ContainerRows() int { return e.rowsEnd() / rowBytes }

func (e *Engine) rowsEnd() int { return int(e.coll.Maps[kernelMapContainers].MaxEntries()) * rowBytes }

func (e *Engine) rowOf(i Instance) (int, bool) {
	for row := range e.eachRow() {
		if Instance(e.rows.load64(row+rowInstance)) == i {
			return row, true
		}
	}
	return 0, false
}

// Bind binds a namespace to a new instance (b.Instance is ignored) and returns
// it. When it returns the kernel sees the binding. With b.State Enforced the
// next exec of anybody in the namespace labels; call Label for the tasks that
// are there. Errors: ErrBound, ErrContainersFull, or a table that isn't there.
func (e *Engine) Bind(b Binding) (Instance, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	in := e.tables[b.Table]
	if in == nil {
		return 0, fmt.Errorf("binding: table %#x is not installed", uint64(b.Table))
	}
	if b.Namespace == 0 {
		return 0, errors.New("binding: namespace id 0")
	}
	row := -1
	for at := 0; at+rowBytes <= e.rowsEnd(); at += rowBytes {
		if e.rows.load64(at+rowInstance) == 0 {
			row = at
			break
		}
	}
	if row < 0 {
		return 0, fmt.Errorf("binding: %w (%d)", ErrContainersFull, e.rowsEnd()/rowBytes)
	}
	instance := Instance(e.node.add64(nodeInstances))
	for at := row + 8; at < row+rowBytes; at += 8 {
		e.rows.store64(at, 0)
	}
	e.rows.store64(row+rowTable, uint64(b.Table))
	e.rows.store64(row+rowNS, uint64(b.Namespace))
	e.rows.store32(row+rowState, uint32(b.State))
	e.rows.store32(row+rowInit, uint32(b.Init))
	e.rows.store64(row+rowInstance, uint64(instance))

	var value [16]byte
	binary.LittleEndian.PutUint64(value[:], uint64(instance))
	binary.LittleEndian.PutUint32(value[8:], uint32(row/rowBytes))
	err := e.coll.Maps[kernelMapBindings].Update(uint64(b.Namespace), value[:], ebpf.UpdateNoExist)
	if err != nil {
		e.rows.store64(row+rowInstance, 0)
		if errors.Is(err, ebpf.ErrKeyExist) {
			return 0, fmt.Errorf("binding: %w", ErrBound)
		}
		return 0, fmt.Errorf("binding: %w", err)
	}
	return instance, nil
}

// Rebind puts another table in force for a running instance, for all its tasks
// at once. The caller uninstalls the old one.
func (e *Engine) Rebind(i Instance, t Table) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	row, ok := e.rowOf(i)
	if !ok {
		return fmt.Errorf("rebinding: %w", ErrNoInstance)
	}
	if e.tables[t] == nil {
		return fmt.Errorf("rebinding: table %#x is not installed", uint64(t))
	}
	e.rows.store64(row+rowTable, uint64(t))
	return e.reloaded()
}

// Unbind ends the binding: nobody joins any more. Tasks with the instance's
// label stay confined.
func (e *Engine) Unbind(i Instance) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	row, ok := e.rowOf(i)
	if !ok {
		return fmt.Errorf("unbinding: %w", ErrNoInstance)
	}
	ns := e.rows.load64(row + rowNS)
	var value [16]byte
	err := e.coll.Maps[kernelMapBindings].Lookup(ns, value[:])
	if err == nil && Instance(binary.LittleEndian.Uint64(value[:])) == i {
		err = e.coll.Maps[kernelMapBindings].Delete(ns)
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("unbinding: %w", err)
	}
	return nil
}

// Remove frees the instance's row. Call it after Unbind, when Tasks shows none
// of the instance's tasks: a task that still carried its label would be denied
// everything. The caller uninstalls the table.
func (e *Engine) Remove(i Instance) error {
	if err := e.Unbind(i); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	row, ok := e.rowOf(i)
	if !ok {
		return fmt.Errorf("removing: %w", ErrNoInstance)
	}
	e.rows.store64(row+rowInstance, 0)
	e.before.addRow(e.countsOf(row))
	e.forgetCounts(row / rowBytes)
	if err := e.reloaded(); err != nil {
		return err
	}
	return e.wait()
}

// Bindings returns every instance that the kernel holds, unbound ones with a
// row included.
func (e *Engine) Bindings() ([]Binding, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Binding
	for row := range e.eachRow() {
		out = append(out, Binding{
			Instance:  Instance(e.rows.load64(row + rowInstance)),
			Namespace: NamespaceID(e.rows.load64(row + rowNS)),
			Init:      int(e.rows.load32(row + rowInit)),
			Table:     Table(e.rows.load64(row + rowTable)),
			State:     BindingState(e.rows.load32(row + rowState)),
		})
	}
	return out, nil
}

// Counts is what the kernel counted for one instance.
type Counts struct {
	Births uint64 // labels given, by exec and by fork
	Events uint64 // reported
	Muted  uint64 // not reported: over the budget or the ring was full
}

// Counts returns an instance's counts.
func (e *Engine) Counts(i Instance) (Counts, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	row, ok := e.rowOf(i)
	if !ok {
		return Counts{}, ErrNoInstance
	}
	return e.countsOf(row), nil
}

func (e *Engine) countsOf(row int) Counts {
	return Counts{e.rows.load64(row + rowBirths), e.rows.load64(row + rowEvents), e.rows.load64(row + rowMuted)}
}

// NamespaceID is the 64-bit id of the mount namespace behind fd, an open file
// of /proc/PID/ns/mnt. The caller has made sure that it is a mount namespace.
func (e *Engine) NamespaceID(fd int) (NamespaceID, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var query [8]byte
	binary.LittleEndian.PutUint32(query[:], uint32(fd))
	ret, err := e.coll.Programs[kernelProgFindNamespace].Run(&ebpf.RunOptions{Context: query})
	if err != nil {
		return 0, fmt.Errorf("reading the namespace id: %w", err)
	}
	id := NamespaceID(e.node.load64(nodeAnswer))
	if ret != 0 || id == 0 {
		return 0, fmt.Errorf("reading the namespace id: %w", os.ErrInvalid)
	}
	return id, nil
}

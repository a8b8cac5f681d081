package bpf

import "fmt"

// Totals is how full the kernel part is and what it did, over all containers.
type Totals struct {
	Rows, RowsMax           int    // containers with policies
	HeapBytes, HeapBytesMax int    // of tables
	Programs, ProgramsMax   int    // paths of programs that labels may name
	Events                  uint64 // reported, since this daemon began or of rows older than it
	Muted                   uint64 // judgements that were only counted: over a budget, or the ring was full
	Lost                    uint64 // of those, for want of room in the ring, since the kernel part was first loaded
}

// Totals counts. It walks the map of programs: some thousand system calls when
// that is full.
func (e *Engine) Totals() (Totals, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.before
	t.RowsMax, t.HeapBytesMax = e.rowsEnd()/rowBytes, len(e.heap)
	t.HeapBytes = t.HeapBytesMax - e.space.bytesFree()
	t.Lost = e.node.load64(nodeLost)
	for row := range e.eachRow() {
		t.Rows++
		t.addRow(e.countsOf(row))
	}
	for _, name := range []string{kernelMapPrograms, kernelMapLongPrograms} {
		m := e.coll.Maps[name]
		t.ProgramsMax += int(m.MaxEntries())
		value := make([]byte, m.ValueSize())
		var key uint64
		it := m.Iterate()
		for it.Next(&key, &value) {
			t.Programs++
		}
		if err := it.Err(); err != nil {
			return Totals{}, fmt.Errorf("counting programs: %w", err)
		}
	}
	return t, nil
}

func (t *Totals) addRow(c Counts) {
	t.Events += c.Events
	t.Muted += c.Muted
}

package bpf

import (
	"encoding/binary"
	"fmt"

	"github.com/dunnage-project/dunnage/policy"
)

// layout writes an automaton as the cells that c/step.h and c/judge.h read.
// Cells are numbered absolutely: base is where the table's header will be.
type layout struct {
	base  uint32
	cells [][cellBytes]byte
}

// layTable returns the cells of a table that starts at cell base. The header's
// id is left 0. The result is the same for equal automata but for base.
func layTable(a *policy.Automaton, base uint32) ([][cellBytes]byte, error) {
	if a.Words > maskWords {
		return nil, fmt.Errorf("%d subject groups: the kernel part holds %d", a.Groups, MaxGroups)
	}
	l := &layout{base: base}
	header := l.take(1)
	inherit := l.words(padMask(a.Inherit, a.Words))
	masks := make([]uint32, len(a.Masks))
	for i, m := range a.Masks {
		masks[i] = l.words(padMask(m, a.Words))
	}
	rows := make([]uint32, len(a.Rows))
	for i := range a.Rows {
		var err error
		if rows[i], err = l.row(&a.Rows[i], a.Words); err != nil {
			return nil, err
		}
	}
	paths := l.dfa(&a.Paths, rows)
	programs := l.dfa(&a.Programs, masks)

	h := l.cell(header)
	copy(h[8:40], a.Digest[:])
	put32(h, 40, paths)
	put32(h, 44, programs)
	put32(h, 48, inherit)
	put32(h, 52, uint32(len(l.cells)))
	put32(h, 56, tableFlags(a))
	put32(h, 60, uint32(a.Words))
	return l.cells, nil
}

func tableFlags(a *policy.Automaton) uint32 {
	var f uint32
	set := func(on bool, bit uint32) {
		if on {
			f |= bit
		}
	}
	set(a.AllowMounts, tableMounts)
	set(a.AllowMemfdExec, tableMemfd)
	set(a.AuditMounts, tableMountsAudit)
	set(a.AuditMemfdExec, tableMemfdAudit)
	for _, layer := range a.Layers {
		set(!layer.Audit, tableEnforce)
	}
	return f
}

// take reserves n cells and returns the number of the first.
func (l *layout) take(n int) uint32 {
	at := l.base + uint32(len(l.cells))
	l.cells = append(l.cells, make([][cellBytes]byte, n)...)
	return at
}

func (l *layout) cell(at uint32) []byte { return l.cells[at-l.base][:] }

// words stores a stream of words in as many cells as it needs.
func (l *layout) words(stream []uint64) uint32 {
	at := l.take((len(stream) + cellWords - 1) / cellWords)
	for i, w := range stream {
		binary.LittleEndian.PutUint64(l.cell(at + uint32(i/cellWords))[8*(i%cellWords):], w)
	}
	return at
}

func padMask(m policy.Mask, words int) []uint64 {
	out := make([]uint64, words)
	copy(out, m)
	return out
}

// row lays a rights row and returns its cell. A right of 0 is everybody's.
func (l *layout) row(r *policy.Row, words int) (at uint32, err error) {
	at = l.take(1)
	for k := range r {
		right := &r[k]
		if len(right.Deny) == 0 && len(right.Grant) == 0 && len(right.AuditDeny) == 0 && len(right.AuditGrant) == 0 {
			continue
		}
		if len(right.Grant) > grantsMax || len(right.AuditGrant) > grantsMax {
			return 0, fmt.Errorf("%d layers: the kernel part holds %d", max(len(right.Grant), len(right.AuditGrant)), grantsMax)
		}
		stream := []uint64{uint64(len(right.Grant)) | uint64(len(right.AuditGrant))<<8}
		stream = append(stream, padMask(right.Deny, words)...)
		for _, g := range right.Grant {
			stream = append(stream, padMask(g, words)...)
		}
		stream = append(stream, padMask(right.AuditDeny, words)...)
		for _, g := range right.AuditGrant {
			stream = append(stream, padMask(g, words)...)
		}
		cell := l.words(stream)
		put32(l.cell(at), 4*k, cell)
	}
	return at, nil
}

// dfa lays an automaton and returns the cell of its start state. outs are the
// cells of what its states' Out number.
func (l *layout) dfa(d *policy.DFA, outs []uint32) uint32 {
	first := l.take(len(d.States))
	globs := make([]uint32, len(d.Globs))
	for i := range d.Globs {
		globs[i] = l.glob(&d.Globs[i])
	}
	for i := range d.States {
		st := &d.States[i]
		at := first + uint32(i)
		var flags uint32
		put32(l.cell(at), 4, outs[st.Out])
		put32(l.cell(at), 8, first+uint32(st.Default))
		put32(l.cell(at), 32, outs[d.States[st.Default].Out])
		if st.Final {
			flags |= stateFinal
		}
		if len(st.Edges) > 0 {
			flags |= stateEdges
			slots, mask, seed, home := l.edges(st.Edges, first, func(state policy.StateID) uint32 { return outs[d.States[state].Out] })
			if home {
				flags |= stateHome
			}
			put32(l.cell(at), 12, slots)
			put32(l.cell(at), 16, mask)
			put32(l.cell(at), 20, seed)
		}
		if st.Glob >= 0 {
			flags |= stateGlob
			targets := make([]uint32, len(st.GlobNext))
			for c, next := range st.GlobNext {
				targets[c] = first + uint32(next)
			}
			cell := l.u32s(targets)
			put32(l.cell(at), 24, globs[st.Glob])
			put32(l.cell(at), 28, cell)
		}
		put32(l.cell(at), 0, flags)
	}
	return first + uint32(d.Start)
}

// homeMax is the most edges for which slots are sought that put every one of
// them at the place of its hash, so that one look finds any name.
const homeMax = 64

// edges lays the slots of a state's literal names: open addressing, no name
// farther than probeMax-1 from its place; home says that all are at theirs.
func (l *layout) edges(edges []policy.Edge, first uint32, out func(policy.StateID) uint32) (slots, mask, seed uint32, home bool) {
	size := 1
	for size < 2*len(edges) && len(edges) > 1 {
		size *= 2
	}
	lay := func(size int, seed uint32, place []uint32) (uint32, uint32, uint32, bool) {
		slots := l.take(size)
		home := true
		for i, slot := range place {
			l.edge(slots+slot, edges[i].Name, first+uint32(edges[i].Next), out(edges[i].Next))
			home = home && slot == uint32(hashName(edges[i].Name, seed)>>32)&uint32(size-1)
		}
		return slots, uint32(size - 1), seed, home
	}
	if len(edges) <= homeMax {
		for wide := size; wide <= 4*size; wide *= 2 {
			for seed := range uint32(32) {
				if place, ok := placeEdges(edges, wide, seed, 1); ok {
					return lay(wide, seed, place)
				}
			}
		}
	}
	for ; ; size *= 2 {
		for seed := range uint32(16) {
			if place, ok := placeEdges(edges, size, seed, probeMax); ok {
				return lay(size, seed, place)
			}
		}
	}
}

// placeEdges finds the slot of each edge, or reports that this size and seed
// would put one `far` or more from its place.
func placeEdges(edges []policy.Edge, size int, seed uint32, far int) ([]uint32, bool) {
	taken := make([]bool, size)
	place := make([]uint32, len(edges))
	for i := range edges {
		h := uint32(hashName(edges[i].Name, seed) >> 32)
		found := false
		for p := range uint32(min(far, size)) {
			slot := (h + p) & uint32(size-1)
			if !taken[slot] {
				taken[slot], place[i], found = true, slot, true
				break
			}
		}
		if !found {
			return nil, false
		}
	}
	return place, true
}

func (l *layout) edge(at uint32, name string, next, out uint32) {
	words := nameWords(name)
	var more uint32
	if len(words) > edgeWords {
		more = l.words(words[edgeWords:])
	}
	c := l.cell(at)
	put32(c, 0, next)
	binary.LittleEndian.PutUint16(c[4:], uint16(len(name)))
	put32(c, 8, more)
	put32(c, 12, out)
	for i, w := range words[:min(len(words), edgeWords)] {
		binary.LittleEndian.PutUint64(c[16+8*i:], w)
	}
}

// nameWords is a name as whole words, zero-padded, as c/step.h reads it.
func nameWords(name string) []uint64 {
	b := make([]byte, (len(name)+7)/8*8)
	copy(b, name)
	words := make([]uint64, len(b)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return words
}

// hashName is read_name of c/step.h.
func hashName(name string, seed uint32) uint64 {
	h := uint64(seed)
	for _, w := range nameWords(name) {
		h = hashWord(h, w)
	}
	return h
}

func hashWord(h, word uint64) uint64 {
	h = (h ^ word) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

func (l *layout) glob(g *policy.Glob) uint32 {
	at := l.take(1)
	bytes := l.take(256 / cellBytes)
	for b, class := range g.ByteClass {
		l.cell(bytes + uint32(b/cellBytes))[b%cellBytes] = class
	}
	next := l.u16s(g.Next)
	accept := make([]uint16, len(g.Class))
	for i, class := range g.Class {
		accept[i] = uint16(class + 1)
	}
	acceptAt := l.u16s(accept)
	c := l.cell(at)
	put32(c, 0, bytes)
	put32(c, 4, next)
	put32(c, 8, acceptAt)
	put32(c, 12, uint32(g.Classes))
	put32(c, 16, uint32(g.Dead)) // -1: ~0
	return at
}

func (l *layout) u16s(v []uint16) uint32 {
	at := l.take((2*len(v) + cellBytes - 1) / cellBytes)
	for i, x := range v {
		binary.LittleEndian.PutUint16(l.cell(at + uint32(2*i/cellBytes))[2*i%cellBytes:], x)
	}
	return at
}

func (l *layout) u32s(v []uint32) uint32 {
	at := l.take((4*len(v) + cellBytes - 1) / cellBytes)
	for i, x := range v {
		put32(l.cell(at+uint32(4*i/cellBytes)), 4*i%cellBytes, x)
	}
	return at
}

func put32(c []byte, at int, v uint32) { binary.LittleEndian.PutUint32(c[at:], v) }

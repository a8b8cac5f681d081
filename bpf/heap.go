package bpf

import (
	"cmp"
	"fmt"
	"slices"
)

// space hands out runs of cells of the table heap: first fit, neighbours
// joined when given back. Cell 0 is never handed out: in a table it means none.
type space struct {
	free []span // sorted by first
}

type span struct{ first, cells uint32 }

// newSpace returns the space of a heap of n cells of which `used` are taken.
func newSpace(n uint32, used []span) *space {
	slices.SortFunc(used, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	s := &space{}
	at := uint32(1)
	for _, u := range used {
		if u.first > at {
			s.free = append(s.free, span{at, u.first - at})
		}
		at = max(at, u.first+u.cells)
	}
	if n > at {
		s.free = append(s.free, span{at, n - at})
	}
	return s
}

// take returns a run of n cells, or an error that says how much is left.
func (s *space) take(n uint32) (span, error) {
	for i, f := range s.free {
		if f.cells < n {
			continue
		}
		if f.cells == n {
			s.free = slices.Delete(s.free, i, i+1)
		} else {
			s.free[i] = span{f.first + n, f.cells - n}
		}
		return span{f.first, n}, nil
	}
	return span{}, fmt.Errorf("%w: %d bytes wanted, %d free", ErrHeapFull, int(n)*cellBytes, s.bytesFree())
}

// give returns a run.
func (s *space) give(g span) {
	i, _ := slices.BinarySearchFunc(s.free, g, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	s.free = slices.Insert(s.free, i, g)
	if i+1 < len(s.free) && g.first+g.cells == s.free[i+1].first {
		s.free[i].cells += s.free[i+1].cells
		s.free = slices.Delete(s.free, i+1, i+2)
	}
	if i > 0 && s.free[i-1].first+s.free[i-1].cells == s.free[i].first {
		s.free[i-1].cells += s.free[i].cells
		s.free = slices.Delete(s.free, i, i+1)
	}
}

func (s *space) bytesFree() int {
	n := 0
	for _, f := range s.free {
		n += int(f.cells) * cellBytes
	}
	return n
}

package policy

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// source is one pattern that a DFA is built from.
type source struct {
	components []Component
	owner      int  // what matches: handed to the out function
	below      bool // matches everything below too
	pos        Position
}

// builder is the subset construction: a state is a sorted set of items. An item
// below len(at) is a place in a pattern; above, an owner that has matched here
// and below (len(at)+owner), or here only (len(at)+owners+owner).
type builder struct {
	at     []place
	owners int
	out    func(matched []int) uint32

	number map[string]StateID
	sets   [][]uint32
	states []State
	globs  *globSet
	edges  int // of all states so far
}

// place is item i: component number `component` of pattern `source` comes next.
type place struct {
	src       *source
	component int
}

// build makes the minimal automaton of the sources; out gives the Out of the
// state in which just those owners match.
func build(sources []source, out func([]int) uint32) (*DFA, error) {
	b := &builder{out: out, number: map[string]StateID{}, globs: newGlobSet()}
	first := make([]uint32, len(sources))
	for i := range sources {
		s := &sources[i]
		first[i] = uint32(len(b.at))
		for c := range s.components {
			b.at = append(b.at, place{s, c})
		}
		b.owners = max(b.owners, s.owner+1)
	}
	var start []uint32
	for i := range sources {
		start = b.enter(start, &sources[i], first[i], 0)
	}
	b.state(start)
	for i := 0; i < len(b.states); i++ {
		if len(b.states) > MaxStates {
			return nil, fmt.Errorf("%s: with this pattern the policy needs more than %d states: use fewer `**` and globs, or split the policy",
				b.culprit(b.sets[i]), MaxStates)
		}
		if b.edges > MaxEdges {
			return nil, fmt.Errorf("%s: with this pattern the policy needs more than %d edges: use fewer `**` and globs, or split the policy",
				b.culprit(b.sets[i]), MaxEdges)
		}
		if err := b.expand(StateID(i)); err != nil {
			return nil, err
		}
		b.sets[i] = nil
	}
	return minimise(b.states, b.globs)
}

// enter adds to a set the item "component n of s is next", with all that it
// implies: a `**` may match nothing, and behind the last component s matches.
func (b *builder) enter(set []uint32, s *source, first uint32, n int) []uint32 {
	if n == len(s.components) {
		item := uint32(len(b.at) + s.owner)
		if !s.below {
			item += uint32(b.owners)
		}
		return append(set, item)
	}
	set = append(set, first+uint32(n))
	if s.components[n].Deep {
		set = b.enter(set, s, first, n+1)
	}
	return set
}

// state returns the number of the state for a set, a new one if need be.
func (b *builder) state(set []uint32) StateID {
	set = b.prune(set)
	key := make([]byte, 0, 4*len(set))
	for _, item := range set {
		key = binary.LittleEndian.AppendUint32(key, item)
	}
	if n, ok := b.number[string(key)]; ok {
		return n
	}
	var matched []int
	for _, item := range set {
		if item >= uint32(len(b.at)) {
			matched = append(matched, (int(item)-len(b.at))%b.owners)
		}
	}
	slices.Sort(matched)
	n := StateID(len(b.states))
	b.number[string(key)] = n
	b.sets = append(b.sets, set)
	b.states = append(b.states, State{Out: b.out(slices.Compact(matched)), Glob: -1})
	return n
}

// prune sorts a set and leaves out what says nothing more: once an owner has
// matched with all that is below, where else it could match does not matter.
// Without this, n patterns such as /**/name would need 2^n states.
func (b *builder) prune(set []uint32) []uint32 {
	slices.Sort(set)
	set = slices.Compact(set)
	places, below := uint32(len(b.at)), uint32(len(b.at)+b.owners)
	var matched []uint32
	for _, item := range set {
		if item >= places && item < below {
			matched = append(matched, item-places)
		}
	}
	if matched == nil {
		return set
	}
	return slices.DeleteFunc(set, func(item uint32) bool {
		owner := item - below
		switch {
		case item < places:
			owner = uint32(b.at[item].src.owner)
		case item < below:
			return false
		}
		_, ok := slices.BinarySearch(matched, owner)
		return ok
	})
}

// expand works out where a state's names lead.
func (b *builder) expand(n StateID) error {
	set := b.sets[n]
	var always []uint32 // whatever the name
	literals := map[string][]uint32{}
	var globs []globItem
	for _, item := range set {
		if item >= uint32(len(b.at)) {
			if item < uint32(len(b.at)+b.owners) {
				always = append(always, item)
			}
			continue
		}
		p := b.at[item]
		first, c := item-uint32(p.component), &p.src.components[p.component]
		switch {
		case c.Deep:
			always = b.enter(always, p.src, first, p.component)
		case c.Glob == nil:
			literals[c.Literal] = b.enter(literals[c.Literal], p.src, first, p.component+1)
		case len(c.Glob) == 1 && c.Glob[0].Star:
			always = b.enter(always, p.src, first, p.component+1)
		default:
			globs = append(globs, globItem{c, b.enter(nil, p.src, first, p.component+1)})
		}
	}
	// A map cell may have been appended to through the slice header: build
	// each target from copies.
	target := func(more ...[]uint32) StateID {
		all := slices.Clone(always)
		for _, m := range more {
			all = append(all, m...)
		}
		return b.state(all)
	}
	other := target()
	edges := make([]Edge, 0, len(literals))
	for name, items := range literals {
		more := [][]uint32{items}
		for _, g := range globs {
			if g.component.Match(name) {
				more = append(more, g.items)
			}
		}
		edges = append(edges, Edge{name, target(more...)})
	}
	slices.SortFunc(edges, compareEdges)
	glob, next := int32(-1), []StateID(nil)
	if len(globs) > 0 {
		var classes [][]int
		var err error
		if glob, classes, err = b.globs.machine(globs); err != nil {
			return fmt.Errorf("%s: %w", b.culprit(set), err)
		}
		for _, class := range classes {
			var more [][]uint32
			for _, g := range globs {
				if _, ok := slices.BinarySearch(class, b.globs.id(g.component)); ok {
					more = append(more, g.items)
				}
			}
			next = append(next, target(more...))
		}
	}
	b.edges += len(edges) + len(next)
	st := &b.states[n]
	st.Default, st.Edges, st.Glob, st.GlobNext = other, edges, glob, next
	return nil
}

func compareEdges(a, b Edge) int {
	switch {
	case a.Name < b.Name:
		return -1
	case a.Name > b.Name:
		return 1
	}
	return 0
}

// culprit is the place of a pattern with `**` or a glob in the set: such
// patterns are what multiplies states.
func (b *builder) culprit(set []uint32) Position {
	for _, item := range slices.Backward(set) {
		if item < uint32(len(b.at)) {
			p := b.at[item]
			if c := p.src.components[p.component]; c.Deep || c.Glob != nil {
				return p.src.pos
			}
		}
	}
	if len(b.at) > 0 {
		return b.at[0].src.pos
	}
	return Position{}
}

// globItem is a glob component of a state and what follows if it matches.
type globItem struct {
	component *Component
	items     []uint32
}

package policy

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// source is one pattern that a DFA is built from.
type source struct {
	components []Component
	owner      int       // what matches: handed to the out function
	bits       AccessSet // and for which of up to six things
	below      bool      // matches everything below too
	pos        Position
}

// match is an owner that matches, and for what.
type match struct {
	owner int
	bits  AccessSet
}

// builder is the subset construction: a state is a sorted set of items. An item
// below len(at) is a place in a pattern; above, an owner with its bits that has
// matched here and below, and above those one that has matched here only. An
// owner is in each part once, with all of its bits: how many patterns gave them
// tells no states apart.
type builder struct {
	at     []place
	owners int
	out    func([]match) uint32

	number map[string]StateID
	outs   map[string]uint32 // of each set of matches
	sets   [][]uint32
	states []State
	globs  *globSet
	edges  int // of all states so far

	always  map[string]uint32  // numbers of long sets that many steps have in common
	reached map[string]StateID // by such a number and what comes to it

	key     []byte // scratch, as are these
	matched []match
	here    []uint32
	target  []uint32
}

// place is item i: component number `component` of pattern `source` comes next.
type place struct {
	src       *source
	component int
}

// build makes the minimal automaton of the sources; out gives the Out of the
// state in which just those owners match. With more than `limit` states before they are
// minimised it gives up.
func build(sources []source, limit int, out func([]match) uint32) (*DFA, error) {
	b := &builder{out: out, number: map[string]StateID{}, outs: map[string]uint32{},
		always: map[string]uint32{}, reached: map[string]StateID{}, globs: newGlobSet()}
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
		if err := b.expand(StateID(i)); err != nil {
			return nil, err
		}
		over := func(what string, limit int) error {
			return fmt.Errorf("%s: with this pattern the policy needs more than %d %s: use fewer `**` and globs, or split the policy",
				b.culprit(b.sets[i]), limit, what)
		}
		switch {
		case len(b.states) > limit:
			return nil, over("states", limit)
		case b.edges > MaxEdges:
			return nil, over("edges", MaxEdges)
		}
		b.sets[i] = nil
	}
	return minimise(b.states, b.globs)
}

// enter adds to a set the item "component n of s is next", with all that it
// implies: a `**` may match nothing, and behind the last component s matches.
func (b *builder) enter(set []uint32, s *source, first uint32, n int) []uint32 {
	if n == len(s.components) {
		return append(set, b.item(match{s.owner, s.bits}, s.below))
	}
	set = append(set, first+uint32(n))
	if s.components[n].Deep {
		set = b.enter(set, s, first, n+1)
	}
	return set
}

// state returns the number of the state for a set, a new one if need be. The set
// is the caller's again afterwards.
func (b *builder) state(set []uint32) StateID {
	set = b.prune(set)
	b.key = appendSet(b.key[:0], set)
	if n, ok := b.number[string(b.key)]; ok {
		return n
	}
	n := StateID(len(b.states))
	b.number[string(b.key)] = n
	b.sets = append(b.sets, slices.Clone(set))
	b.states = append(b.states, State{Out: b.outOf(set), Glob: -1})
	return n
}

// outOf is the Out of a state with this set.
func (b *builder) outOf(set []uint32) uint32 {
	i, _ := slices.BinarySearch(set, uint32(len(b.at)))
	b.key = appendSet(b.key[:0], set[i:])
	out, ok := b.outs[string(b.key)]
	if !ok {
		bits := map[int]AccessSet{}
		for _, item := range set[i:] {
			m, _ := b.match(item)
			bits[m.owner] |= m.bits
		}
		var matched []match
		for _, owner := range slices.Sorted(maps.Keys(bits)) {
			matched = append(matched, match{owner, bits[owner]})
		}
		out = b.out(matched)
		b.outs[string(b.key)] = out
	}
	return out
}

// appendSet appends a map key for a sorted set.
func appendSet(key []byte, set []uint32) []byte {
	for _, item := range set {
		key = binary.LittleEndian.AppendUint32(key, item)
	}
	return key
}

// longSet is from how many items on a set is not built anew for each step.
const longSet = 32

// item is a match as a member of a set.
func (b *builder) item(m match, below bool) uint32 {
	item := len(b.at) + m.owner<<NumKinds + int(m.bits)
	if !below {
		item += b.owners << NumKinds
	}
	return uint32(item)
}

// match is what an item that is no place says.
func (b *builder) match(item uint32) (m match, below bool) {
	n := int(item) - len(b.at)
	if below = n < b.owners<<NumKinds; !below {
		n -= b.owners << NumKinds
	}
	return match{n >> NumKinds, AccessSet(n) & AllAccess}, below
}

// prune sorts a set and leaves out what says nothing more: once an owner has
// matched with all that is below, where else it could match does not matter.
// Without this, n patterns such as /**/name would need 2^n states.
func (b *builder) prune(set []uint32) []uint32 {
	slices.Sort(set)
	set = slices.Compact(set)
	end, _ := slices.BinarySearch(set, uint32(len(b.at)))
	if end == len(set) {
		return set
	}
	below := b.matched[:0]
	more := set[end:]
	for len(more) > 0 {
		m, isBelow := b.match(more[0])
		if !isBelow {
			break
		}
		if last := len(below) - 1; last >= 0 && below[last].owner == m.owner {
			below[last].bits |= m.bits
		} else {
			below = append(below, m)
		}
		more = more[1:]
	}
	b.matched = below
	covered := func(owner int) AccessSet {
		i, ok := slices.BinarySearchFunc(below, owner, func(m match, owner int) int { return m.owner - owner })
		if !ok {
			return 0
		}
		return below[i].bits
	}
	kept := set[:0]
	for _, item := range set[:end] {
		if s := b.at[item].src; s.bits&^covered(s.owner) != 0 {
			kept = append(kept, item)
		}
	}
	var here match
	flush := func() {
		if here.bits &^= covered(here.owner); here.bits != 0 {
			kept = append(kept, b.item(here, false))
		}
	}
	b.here = append(b.here[:0], more...)
	for _, m := range below {
		kept = append(kept, b.item(m, true))
	}
	for _, item := range b.here {
		m, _ := b.match(item)
		if m.owner != here.owner {
			flush()
			here = match{owner: m.owner}
		}
		here.bits |= m.bits
	}
	flush()
	return kept
}

// expand works out where a state's names lead.
func (b *builder) expand(n StateID) error {
	set := b.sets[n]
	var always []uint32 // whatever the name
	literals := map[string][]uint32{}
	var globs []globItem
	for _, item := range set {
		if item >= uint32(len(b.at)) {
			if _, below := b.match(item); below {
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
	always = b.prune(always)
	id := uint32(0) // of a long set: where it leads with what more is remembered
	if len(always) > longSet {
		b.key = appendSet(b.key[:0], always)
		var ok bool
		if id, ok = b.always[string(b.key)]; !ok {
			id = uint32(len(b.always) + 1)
			b.always[string(b.key)] = id
		}
	}
	target := func(more ...[]uint32) StateID {
		b.target = b.target[:0]
		for _, m := range more {
			b.target = append(b.target, m...)
		}
		if id == 0 {
			return b.state(append(b.target, always...))
		}
		b.key = appendSet(binary.LittleEndian.AppendUint32(b.key[:0], id), b.target)
		n, ok := b.reached[string(b.key)]
		if !ok {
			key := string(b.key)
			n = b.state(append(b.target, always...))
			b.reached[key] = n
		}
		return n
	}
	other := target()
	edges := make([]Edge, 0, len(literals))
	var more [][]uint32
	for name, items := range literals {
		more = append(more[:0], items)
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

package policy

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// mostNames is how many names a glob may stand for to be written as literals.
const mostNames = 64

// minimise merges states that no path tells apart and brings each state into
// its canonical form: literal edges that lead where the glob or the default
// would are left out, the default is where most names lead, a glob gives a class
// only to names that leave the default, and one that stands for a few names
// becomes literal edges. What literals and globs together say in several ways is
// merged by mergeAlike, once the rest is small.
func minimise(states []State, globs *globSet) (*DFA, error) {
	part := make([]StateID, len(states))
	for i := range states {
		part[i] = StateID(states[i].Out)
	}
	m := newMinimiser(states, globs.globs)
	d, err := m.quotient(refine(part, m.signature))
	if err != nil {
		return nil, err
	}
	return mergeAlike(d)
}

// refine splits the parts until equal parts have equal signatures.
func refine(part []StateID, signature func(b []byte, i int, part []StateID) []byte) []StateID {
	for blocks := 0; ; {
		number := map[string]StateID{}
		next := make([]StateID, len(part))
		var key []byte
		for i := range part {
			key = signature(key[:0], i, part)
			id, ok := number[string(key)]
			if !ok {
				id = StateID(len(number))
				number[string(key)] = id
			}
			next[i] = id
		}
		part = next
		if len(number) == blocks {
			return part
		}
		blocks = len(number)
	}
}

type minimiser struct {
	states  []State
	globs   []Glob
	usually []int32              // of each glob
	normal  map[string]*globForm // by glob and where its classes lead
}

func newMinimiser(states []State, globs []Glob) *minimiser {
	m := &minimiser{states: states, globs: globs, normal: map[string]*globForm{}}
	for i := range globs {
		m.usually = append(m.usually, globs[i].usually())
	}
	return m
}

// globForm is a state's glob and default in canonical form: literal names or an
// automaton whose classes number `next`.
type globForm struct {
	other StateID            // where all other names lead
	names map[string]StateID // to parts
	glob  *Glob
	next  []StateID // parts, per class
	key   []byte
}

// form brings the glob of a state into canonical form under a partition.
func (m *minimiser) form(s *State, part []StateID) *globForm {
	if s.Glob < 0 {
		return &globForm{other: part[s.Default]}
	}
	key := binary.LittleEndian.AppendUint32(nil, uint32(s.Glob))
	key = binary.LittleEndian.AppendUint32(key, uint32(part[s.Default]))
	for _, to := range s.GlobNext {
		key = binary.LittleEndian.AppendUint32(key, uint32(part[to]))
	}
	if f, ok := m.normal[string(key)]; ok {
		return f
	}
	f := m.makeForm(s, part)
	m.normal[string(key)] = f
	return f
}

// leads is the part that the names of a class lead to.
func (s *State) leads(class int32, part []StateID) StateID {
	if class < 0 {
		return part[s.Default]
	}
	return part[s.GlobNext[class]]
}

// other is the part where all names lead but for those of the state's form.
func (m *minimiser) other(s *State, part []StateID) StateID {
	if s.Glob < 0 {
		return part[s.Default]
	}
	return s.leads(m.usually[s.Glob], part)
}

func (m *minimiser) makeForm(s *State, part []StateID) *globForm {
	other := m.other(s, part)
	var next []StateID // label -> part
	from := &m.globs[s.Glob]
	out := make([]int32, len(from.Class))
	for i, class := range from.Class {
		p := s.leads(class, part)
		if p == other {
			out[i] = -1
			continue
		}
		label := slices.Index(next, p)
		if label < 0 {
			label = len(next)
			next = append(next, p)
		}
		out[i] = int32(label)
	}
	g := from.relabel(out)
	if g == nil {
		return &globForm{other: other}
	}
	if names, ok := g.names(mostNames); ok {
		f := &globForm{other: other, names: map[string]StateID{}}
		for name, class := range names {
			f.names[name] = next[class]
		}
		return f
	}
	// Number the classes in the order in which the automaton's states give them.
	order := make([]int32, len(next))
	for i := range order {
		order[i] = -1
	}
	var sorted []StateID
	for i, c := range g.Class {
		if c < 0 {
			continue
		}
		if order[c] < 0 {
			order[c] = int32(len(sorted))
			sorted = append(sorted, next[c])
		}
		g.Class[i] = order[c]
	}
	f := &globForm{other: other, glob: g, next: sorted, key: g.key()}
	for _, p := range sorted {
		f.key = binary.LittleEndian.AppendUint32(f.key, uint32(p))
	}
	return f
}

// edges is the state's literal edges in canonical form, to parts.
func (m *minimiser) edges(s *State, f *globForm, part []StateID) []Edge {
	out := make([]Edge, 0, len(s.Edges)+len(f.names))
	for _, e := range s.Edges {
		without := f.other
		if f.glob != nil {
			if c := f.glob.Run(e.Name); c >= 0 {
				without = f.next[c]
			}
		}
		if p := part[e.Next]; p != without {
			out = append(out, Edge{e.Name, p})
		}
	}
	if len(f.names) > 0 {
		for name, p := range f.names {
			if _, ok := slices.BinarySearchFunc(s.Edges, name, func(e Edge, n string) int { return compareEdges(e, Edge{Name: n}) }); !ok {
				out = append(out, Edge{name, p})
			}
		}
		slices.SortFunc(out, compareEdges)
	}
	return out
}

// signature is equal for states that one more step does not tell apart.
func (m *minimiser) signature(b []byte, i int, part []StateID) []byte {
	s := &m.states[i]
	f := m.form(s, part)
	b = binary.LittleEndian.AppendUint32(b, uint32(part[i]))
	b = binary.LittleEndian.AppendUint32(b, uint32(f.other))
	for _, e := range m.edges(s, f, part) {
		b = append(b, byte(len(e.Name)))
		b = append(b, e.Name...)
		b = binary.LittleEndian.AppendUint32(b, uint32(e.Next))
	}
	b = append(b, 0)
	return append(b, f.key...)
}

// quotient is the automaton with one state for each part, numbered in the order
// in which the start state reaches them.
func (m *minimiser) quotient(part []StateID) (*DFA, error) {
	member := map[StateID]int{}
	for i, p := range part {
		if _, ok := member[p]; !ok {
			member[p] = i
		}
	}
	d := &DFA{}
	number := map[StateID]StateID{}
	var order []StateID
	reach := func(p StateID) StateID {
		n, ok := number[p]
		if !ok {
			n = StateID(len(order))
			number[p] = n
			order = append(order, p)
		}
		return n
	}
	reach(part[0])
	globAt := map[string]int32{}
	for i := 0; i < len(order); i++ {
		s := &m.states[member[order[i]]]
		f := m.form(s, part)
		st := State{Out: s.Out, Glob: -1, Default: reach(f.other)}
		for _, e := range m.edges(s, f, part) {
			st.Edges = append(st.Edges, Edge{e.Name, reach(e.Next)})
		}
		if f.glob != nil {
			key := string(f.glob.key())
			g, ok := globAt[key]
			if !ok {
				if len(d.Globs) > 1<<20 {
					return nil, fmt.Errorf("more than %d different sets of globs", 1<<20)
				}
				g = int32(len(d.Globs))
				globAt[key] = g
				d.Globs = append(d.Globs, *f.glob)
			}
			st.Glob = g
			for _, p := range f.next {
				st.GlobNext = append(st.GlobNext, reach(p))
			}
		}
		st.Final = len(st.Edges) == 0 && st.Glob < 0 && int(st.Default) == i
		d.States = append(d.States, st)
	}
	return d, nil
}

package policy

import (
	"encoding/binary"
	"errors"
	"slices"
)

// MaxGlobStates bounds the byte automaton for the globs of one directory level.
const MaxGlobStates = 4096

var errGlobTooLarge = errors.New("the globs of one directory level are too many or too tangled: write fewer `*` in a name")

// globSet makes the byte automata that sort names by which globs they match.
// States with the same globs share one.
type globSet struct {
	ids      map[string]int // component key -> number
	seen     map[*Component]int
	tokens   [][]Token
	machines map[string]int32
	classes  [][][]int // per machine: the globs of each class
	globs    []Glob
}

func newGlobSet() *globSet {
	return &globSet{ids: map[string]int{}, seen: map[*Component]int{}, machines: map[string]int32{}}
}

// id numbers a glob; equal globs have one number.
func (s *globSet) id(c *Component) int {
	if id, ok := s.seen[c]; ok {
		return id
	}
	key := c.key()
	id, ok := s.ids[key]
	if !ok {
		id = len(s.tokens)
		s.ids[key] = id
		s.tokens = append(s.tokens, c.Glob)
	}
	s.seen[c] = id
	return id
}

// setKey is a map key for a sorted set.
func setKey(set []int) string {
	b := make([]byte, 0, 4*len(set))
	for _, n := range set {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return string(b)
}

// machine is the automaton for the globs of one state, and for each of its
// classes the globs that a name of that class matches.
func (s *globSet) machine(items []globItem) (int32, [][]int, error) {
	var set []int
	for _, it := range items {
		set = append(set, s.id(it.component))
	}
	slices.Sort(set)
	set = slices.Compact(set)
	key := setKey(set)
	if m, ok := s.machines[key]; ok {
		return m, s.classes[m], nil
	}
	g, classes, err := s.construct(set)
	if err != nil {
		return 0, nil, err
	}
	m := int32(len(s.globs))
	s.globs = append(s.globs, g)
	s.classes = append(s.classes, classes)
	s.machines[key] = m
	return m, classes, nil
}

// construct is the subset construction over bytes.
func (s *globSet) construct(set []int) (Glob, [][]int, error) {
	var places []globPlace
	base := make(map[int]int, len(set)) // the number of each glob's first place
	for _, id := range set {
		base[id] = len(places)
		for i := 0; i <= len(s.tokens[id]); i++ {
			places = append(places, globPlace{id, i})
		}
	}
	// enter adds place n and closes over stars, which may match nothing. The
	// places of one glob follow one another.
	enter := func(set []int, n int) []int {
		for {
			set = append(set, n)
			p := places[n]
			if t := s.tokens[p.id]; p.at == len(t) || !t[p.at].Star {
				return set
			}
			n++
		}
	}
	g := Glob{Dead: -1}
	samples := s.byteClasses(set, &g)
	states := map[string]int{}
	var sets [][]int
	classOf := map[string]int32{}
	var classes [][]int
	add := func(set []int) int {
		slices.Sort(set)
		set = slices.Compact(set)
		key := setKey(set)
		if n, ok := states[key]; ok {
			return n
		}
		n := len(sets)
		states[key] = n
		sets = append(sets, set)
		var match []int
		for _, p := range set {
			if pl := places[p]; pl.at == len(s.tokens[pl.id]) {
				match = append(match, pl.id)
			}
		}
		class := int32(-1)
		if match != nil {
			ck := setKey(match)
			c, ok := classOf[ck]
			if !ok {
				c = int32(len(classes))
				classOf[ck] = c
				classes = append(classes, match)
			}
			class = c
		}
		g.Class = append(g.Class, class)
		if len(set) == 0 {
			g.Dead = int32(n)
		}
		return n
	}
	var start []int
	for _, id := range set {
		start = enter(start, base[id])
	}
	add(start)
	for n := 0; n < len(sets); n++ {
		for _, b := range samples {
			var next []int
			for _, p := range sets[n] {
				pl := places[p]
				if pl.at == len(s.tokens[pl.id]) {
					continue
				}
				switch t := s.tokens[pl.id][pl.at]; {
				case t.Star:
					next = enter(next, p)
				case t.Set.Has(b):
					next = enter(next, p+1)
				}
			}
			g.Next = append(g.Next, uint16(add(next)))
		}
		if len(sets) > MaxGlobStates {
			return Glob{}, nil, errGlobTooLarge
		}
	}
	return g, classes, nil
}

type globPlace struct{ id, at int }

// byteClasses fills in which bytes no token tells apart, and returns one byte
// of each class.
func (s *globSet) byteClasses(set []int, g *Glob) []byte {
	var sets []ByteSet
	for _, id := range set {
		for _, t := range s.tokens[id] {
			if !t.Star && !slices.Contains(sets, t.Set) {
				sets = append(sets, t.Set)
			}
		}
	}
	class := map[string]uint8{}
	var samples []byte
	for b := range 256 {
		key := make([]byte, len(sets))
		for i, set := range sets {
			if set.Has(byte(b)) {
				key[i] = 1
			}
		}
		c, ok := class[string(key)]
		if !ok {
			c = uint8(len(samples))
			class[string(key)] = c
			samples = append(samples, byte(b))
		}
		g.ByteClass[b] = c
	}
	g.Classes = len(samples)
	for _, b := range []byte{0, '/'} { // no name has them
		g.ByteClass[b] = g.ByteClass[0xff]
	}
	return samples
}

// usually is the class of a name of a million 0xff bytes: what most names have. It
// depends on what the automaton says of names, not on how it is built.
func (g *Glob) usually() int32 {
	const far = 1_000_000
	at := make([]int, len(g.Class)) // when a state was seen, counted from 1
	var seen []int
	for s := 0; ; s = int(g.Next[s*g.Classes+int(g.ByteClass[0xff])]) {
		if first := at[s]; first > 0 {
			first--
			return g.Class[seen[first+(far-first)%(len(seen)-first)]]
		}
		seen = append(seen, s)
		at[s] = len(seen)
	}
}

// relabel is the minimal automaton that gives every name out[s], negative for
// none, where g ends in state s; nil if no name gets a label. The result is
// canonical: equal functions of names have equal keys. The empty name, which there
// is not, has no label.
func (g *Glob) relabel(out []int32) *Glob {
	if !slices.ContainsFunc(out, func(c int32) bool { return c >= 0 }) {
		return nil
	}
	if out[0] >= 0 { // a start of its own, for the empty name
		n := len(out)
		with := &Glob{ByteClass: g.ByteClass, Classes: g.Classes, Next: make([]uint16, 0, len(g.Next)+g.Classes), Class: make([]int32, n+1)}
		for _, from := range append([]int{0}, seq(n)...) {
			for _, to := range g.Next[from*g.Classes : (from+1)*g.Classes] {
				with.Next = append(with.Next, to+1)
			}
		}
		g, out = with, append([]int32{-1}, out...)
	}
	n := len(out)
	part := slices.Clone(out)
	for blocks := 0; ; {
		number := map[string]int32{}
		next := make([]int32, n)
		key := make([]byte, 0, 4*(g.Classes+1))
		for i := range n {
			key = binary.LittleEndian.AppendUint32(key[:0], uint32(part[i]))
			for _, to := range g.Next[i*g.Classes : (i+1)*g.Classes] {
				key = binary.LittleEndian.AppendUint32(key, uint32(part[to]))
			}
			id, ok := number[string(key)]
			if !ok {
				id = int32(len(number))
				number[string(key)] = id
			}
			next[i] = id
		}
		part = next
		if len(number) == blocks {
			break
		}
		blocks = len(number)
	}
	return g.quotient(part, out)
}

// seq is 0 to n-1.
func seq(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// quotient is g with the states of each part made one, numbered in the order in
// which bytes reach them, and with bytes that no state tells apart in one class.
func (g *Glob) quotient(part, out []int32) *Glob {
	member := map[int32]int{} // a state of each part
	for i, p := range part {
		if _, ok := member[p]; !ok {
			member[p] = i
		}
	}
	number := map[int32]uint16{part[0]: 0}
	order := []int32{part[0]}
	var rows [][]uint16 // per state, per old byte class
	for i := 0; i < len(order); i++ {
		at := member[order[i]]
		row := make([]uint16, g.Classes)
		// In byte order, so that the numbers do not depend on the old classes.
		seen := make([]bool, g.Classes)
		for b := range 256 {
			c := g.ByteClass[b]
			if seen[c] {
				continue
			}
			seen[c] = true
			p := part[g.Next[at*g.Classes+int(c)]]
			if _, ok := number[p]; !ok {
				number[p] = uint16(len(order))
				order = append(order, p)
			}
			row[c] = number[p]
		}
		rows = append(rows, row)
	}
	q := &Glob{Dead: -1}
	column := map[string]uint8{}
	var columns []uint8 // an old class for each new one
	for b := range 256 {
		old := g.ByteClass[b]
		key := make([]byte, 0, 2*len(rows))
		for _, row := range rows {
			key = binary.LittleEndian.AppendUint16(key, row[old])
		}
		c, ok := column[string(key)]
		if !ok {
			c = uint8(len(columns))
			column[string(key)] = c
			columns = append(columns, old)
		}
		q.ByteClass[b] = c
	}
	q.Classes = len(columns)
	for i, p := range order {
		q.Class = append(q.Class, out[member[p]])
		dead := out[member[p]] < 0
		for _, old := range columns {
			to := rows[i][old]
			q.Next = append(q.Next, to)
			dead = dead && int(to) == i
		}
		if dead {
			q.Dead = int32(i)
		}
	}
	return q
}

// names lists what the automaton gives labels to, if that is at most `most`
// names; ok is false if there are more.
func (g *Glob) names(most int) (found map[string]int32, ok bool) {
	found = map[string]int32{}
	if g.Class[0] >= 0 {
		return nil, false // the empty name: cannot be told as a literal
	}
	var walk func(s uint16, name []byte) bool
	walk = func(s uint16, name []byte) bool {
		if int32(s) == g.Dead {
			return true
		}
		if len(name) > MaxName {
			return false
		}
		if g.Class[s] >= 0 && len(name) > 0 {
			if len(found) == most {
				return false
			}
			found[string(name)] = g.Class[s]
		}
		for b := 1; b < 256; b++ {
			if b != '/' && !walk(g.Next[int(s)*g.Classes+int(g.ByteClass[b])], append(name, byte(b))) {
				return false
			}
		}
		return true
	}
	if g.cyclic() || !walk(0, nil) {
		return nil, false
	}
	return found, true
}

// cyclic reports whether a state that is not dead can come back to itself: then
// the names have no bound.
func (g *Glob) cyclic() bool {
	const open, closed = 1, 2
	mark := make([]uint8, len(g.Class))
	var visit func(s uint16) bool
	visit = func(s uint16) bool {
		if int32(s) == g.Dead || mark[s] == closed {
			return false
		}
		if mark[s] == open {
			return true
		}
		mark[s] = open
		for _, to := range g.Next[int(s)*g.Classes : (int(s)+1)*g.Classes] {
			if visit(to) {
				return true
			}
		}
		mark[s] = closed
		return false
	}
	return visit(0)
}

// key is the automaton's bytes.
func (g *Glob) key() []byte {
	b := append([]byte(nil), g.ByteClass[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(g.Classes))
	for _, n := range g.Next {
		b = binary.LittleEndian.AppendUint16(b, n)
	}
	for _, c := range g.Class {
		b = binary.LittleEndian.AppendUint32(b, uint32(c))
	}
	return binary.LittleEndian.AppendUint32(b, uint32(g.Dead))
}

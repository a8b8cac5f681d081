package policy

import (
	"encoding/binary"
	"slices"
)

// Literal names and globs can say one thing in several ways: a* without abc and
// abd, or a* without ab[cd]. mergeAlike makes one state of those that differ in
// that only. It works on what minimise has already made small.

const (
	sampleNames = 32     // that tell most states apart
	maxFolded   = 60_000 // states of the byte automaton of a whole directory level
)

// mergeAlike merges the states that no path tells apart, whatever their form. Left
// apart are only levels whose literal names, beside a glob, have more than
// maxFolded bytes.
func mergeAlike(d *DFA) (*DFA, error) {
	if len(d.Globs) == 0 {
		return d, nil
	}
	m := newMinimiser(d.States, d.Globs)
	part := refine(make([]StateID, len(d.States)), func(b []byte, i int, _ []StateID) []byte {
		return binary.LittleEndian.AppendUint32(b, d.States[i].Out)
	})
	// A part of states without globs has one form for one meaning. In the others
	// equal states have equal samples at least; where these tell all apart, and
	// mostly they do, nothing is left to compare.
	var of *StateID // the partition that these are of
	var members, globs []int
	count := func(part []StateID) {
		if of == &part[0] {
			return
		}
		of, members, globs = &part[0], make([]int, len(part)+1), make([]int, len(part)+1)
		for i, p := range part {
			members[p]++
			if d.States[i].Glob >= 0 {
				globs[p]++
			}
		}
	}
	names := samples(d)
	part = refine(part, func(b []byte, i int, part []StateID) []byte {
		count(part)
		if globs[part[i]] == 0 {
			return m.signature(b, i, part)
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(part[i]))
		b = binary.LittleEndian.AppendUint32(b, uint32(m.other(&d.States[i], part)))
		for _, name := range names {
			b = binary.LittleEndian.AppendUint32(b, uint32(part[d.Step(StateID(i), name)]))
		}
		return b
	})
	part = refine(part, func(b []byte, i int, part []StateID) []byte {
		count(part)
		switch p := part[i]; {
		case members[p] == 1:
			return binary.LittleEndian.AppendUint32(b, uint32(p))
		case globs[p] == 0:
			return m.signature(b, i, part)
		}
		return m.folded(binary.LittleEndian.AppendUint32(b, uint32(part[i])), i, part)
	})
	if int(slices.Max(part))+1 == len(d.States) {
		return d, nil
	}
	return m.quotient(part)
}

// samples is some of the names that states ask for.
func samples(d *DFA) []string {
	var names []string
	for i := range d.States {
		for _, e := range d.States[i].Edges {
			names = append(names, e.Name)
		}
	}
	for i := range d.Globs {
		names = append(names, d.Globs[i].shortest()...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var out []string
	for i := range min(sampleNames, len(names)) {
		out = append(out, names[i*len(names)/min(sampleNames, len(names))])
	}
	return out
}

// shortest is a shortest name for each state of the automaton.
func (g *Glob) shortest() (out []string) {
	var bytes []byte // one of each class
	for _, b := range byteOrder() {
		if !slices.ContainsFunc(bytes, func(o byte) bool { return g.ByteClass[o] == g.ByteClass[b] }) {
			bytes = append(bytes, b)
		}
	}
	seen := make([]bool, len(g.Class))
	seen[0] = true
	type at struct {
		state uint16
		name  string
	}
	for queue := []at{{0, ""}}; len(queue) > 0; queue = queue[1:] {
		for _, b := range bytes {
			next := at{g.Next[int(queue[0].state)*g.Classes+int(g.ByteClass[b])], queue[0].name + string([]byte{b})}
			if !seen[next.state] && len(next.name) <= MaxName && len(out) < sampleNames {
				seen[next.state] = true
				out = append(out, next.name)
				queue = append(queue, next)
			}
		}
	}
	return out
}

// folded is a signature that depends only on where each name leads: the minimal
// byte automaton of literals and glob together.
func (m *minimiser) folded(b []byte, i int, part []StateID) []byte {
	s := &m.states[i]
	other := m.other(s, part)
	g := fold(globOf(&DFA{Globs: m.globs}, s), len(s.GlobNext), s.Edges)
	if g == nil {
		return m.signature(append(b, 1), i, part)
	}
	label := func(p StateID) int32 {
		if p == other {
			return -1
		}
		return int32(p)
	}
	out := make([]int32, len(g.Class))
	for n, class := range g.Class {
		if edge := int(class) - len(s.GlobNext); edge >= 0 {
			out[n] = label(part[s.Edges[edge].Next])
		} else {
			out[n] = label(s.leads(class, part))
		}
	}
	b = binary.LittleEndian.AppendUint32(append(b, 0), uint32(other))
	if g = g.relabel(out); g != nil {
		b = append(b, g.key()...)
	}
	return b
}

// fold is a glob with literal names as classes of their own, numbered from `own`
// on: the product with their trie. nil if that is too large.
func fold(g *Glob, own int, literals []Edge) *Glob {
	type node struct {
		glob  uint16 // where the glob is
		class int32
		next  map[byte]int
	}
	nodes := []node{{0, g.Class[0], map[byte]int{}}}
	var inTrie [256]bool
	for i, e := range literals {
		at := 0
		for j := range len(e.Name) {
			b := e.Name[j]
			inTrie[b] = true
			to, ok := nodes[at].next[b]
			if !ok {
				if to = len(nodes); to+len(g.Class) > maxFolded {
					return nil
				}
				glob := g.Next[int(nodes[at].glob)*g.Classes+int(g.ByteClass[b])]
				nodes[at].next[b] = to
				nodes = append(nodes, node{glob, g.Class[glob], map[byte]int{}})
			}
			at = to
		}
		nodes[at].class = int32(own + i)
	}
	out := &Glob{Dead: -1}
	number := map[int]uint8{} // a class for each byte of the trie, and for each of the glob's
	var bytes []byte
	for b := range 256 {
		key := int(g.ByteClass[b])
		if inTrie[b] {
			key = 256 + b
		}
		c, ok := number[key]
		if !ok {
			c = uint8(len(bytes))
			number[key] = c
			bytes = append(bytes, byte(b))
		}
		out.ByteClass[b] = c
	}
	out.ByteClass[0], out.ByteClass['/'] = out.ByteClass[0xff], out.ByteClass[0xff]
	out.Classes = len(bytes)
	step := func(glob int, b byte) uint16 {
		return uint16(len(nodes)) + g.Next[glob*g.Classes+int(g.ByteClass[b])]
	}
	for _, n := range nodes {
		out.Class = append(out.Class, n.class)
		for _, b := range bytes {
			if to, ok := n.next[b]; ok {
				out.Next = append(out.Next, uint16(to))
			} else {
				out.Next = append(out.Next, step(int(n.glob), b))
			}
		}
	}
	for glob, class := range g.Class {
		out.Class = append(out.Class, class)
		for _, b := range bytes {
			out.Next = append(out.Next, step(glob, b))
		}
	}
	return out
}

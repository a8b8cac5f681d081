package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strings"
)

// Limits of one automaton.
const (
	MaxRules  = 50_000  // of all layers together
	MaxGroups = 512     // distinct lists of executables, "anybody" included
	MaxLayers = 8       // of one container
	MaxStates = 150_000 // of one automaton
	MaxEdges  = 1 << 21 // of one automaton, before it is minimised
)

// Compile turns layers, intersected, into one automaton. The errors name the
// rule that goes over a limit.
func Compile(layers []*Policy) (*Automaton, error) {
	if len(layers) == 0 {
		return nil, errors.New("compiling: no layers")
	}
	if len(layers) > MaxLayers {
		return nil, fmt.Errorf("compiling: %d layers: at most %d are possible", len(layers), MaxLayers)
	}
	c := newCompiler(layers)
	if err := c.collect(); err != nil {
		return nil, err
	}
	a := &Automaton{Groups: len(c.groups), Words: (len(c.groups) + 63) / 64, AllowMounts: true, AllowMemfdExec: true}
	c.words = a.Words
	a.AuditMounts, a.AuditMemfdExec = true, true
	for _, p := range layers {
		a.Layers = append(a.Layers, LayerInfo{p.Name, p.Audit})
		a.AllowMounts = a.AllowMounts && p.Mounts
		a.AllowMemfdExec = a.AllowMemfdExec && p.MemfdExec
		a.AuditMounts = a.AuditMounts && (p.Mounts || p.Audit)
		a.AuditMemfdExec = a.AuditMemfdExec && (p.MemfdExec || p.Audit)
	}
	a.AuditMounts = a.AuditMounts && !a.AllowMounts
	a.AuditMemfdExec = a.AuditMemfdExec && !a.AllowMemfdExec
	a.Inherit = make(Mask, a.Words)
	for g, info := range c.groups {
		if info.inherit {
			a.Inherit[g/64] |= 1 << (g % 64)
		}
	}
	paths, err := build(c.pathSources(), MaxStates, c.row)
	if err != nil {
		return nil, err
	}
	programs, err := build(c.programSources(), MaxStates, c.mask)
	if err != nil {
		return nil, err
	}
	a.Paths, a.Rows = *paths, c.rows
	a.Programs, a.Masks = *programs, c.masks
	a.dropUnused()
	a.Digest = digest(a)
	return a, nil
}

// compiler holds what one Compile collects.
type compiler struct {
	layers    []*Policy
	rules     []flatRule
	speakers  []speaker // distinct: the owners of the path automaton
	speakerOf map[speaker]int
	groups    []group
	groupOf   map[string]int
	words     int

	rows   []Row
	rowOf  map[string]uint32
	masks  []Mask
	maskOf map[string]uint32
}

func newCompiler(layers []*Policy) *compiler {
	return &compiler{layers: layers, groups: []group{{}}, groupOf: map[string]int{}, speakerOf: map[speaker]int{},
		maskOf: map[string]uint32{}, rowOf: map[string]uint32{}}
}

type flatRule struct {
	*Rule
	speaker int // index into speakers
}

// speaker is what rules of one layer, effect and group are to the automaton: one,
// however many they are. Where one of them matches with all that is below, the
// others have nothing to add for the same access.
type speaker struct {
	layer  int
	effect Effect
	group  int // -1: an empty list, nobody
}

// group is one distinct (executables, inherit) pair.
type group struct {
	patterns []Pattern
	inherit  bool
	pos      Position
}

// collect numbers the rules and the subject groups.
func (c *compiler) collect() error {
	seen := 0
	for layer, p := range c.layers {
		for i := range p.Rules {
			r := &p.Rules[i]
			if seen++; seen > MaxRules {
				return fmt.Errorf("%s: more than %d rules in all layers", r.Pos, MaxRules)
			}
			g, err := c.group(r)
			if err != nil {
				return err
			}
			if g < 0 && r.Effect != Only {
				continue // nobody is denied, or allowed, anything
			}
			s := speaker{layer, r.Effect, g}
			n, ok := c.speakerOf[s]
			if !ok {
				n = len(c.speakers)
				c.speakerOf[s] = n
				c.speakers = append(c.speakers, s)
			}
			c.rules = append(c.rules, flatRule{r, n})
		}
	}
	return nil
}

func (c *compiler) group(r *Rule) (int, error) {
	switch {
	case !r.Listed:
		return 0, nil
	case len(r.Executables) == 0:
		return -1, nil
	}
	texts := make([]string, len(r.Executables))
	for i, p := range r.Executables {
		texts[i] = p.key()
	}
	slices.Sort(texts)
	key := strings.Join(slices.Compact(texts), "\x00")
	if r.Inherit {
		key += "\x00inherit"
	}
	if g, ok := c.groupOf[key]; ok {
		return g, nil
	}
	if len(c.groups) == MaxGroups {
		return 0, fmt.Errorf("%s: more than %d different lists of executables", r.Pos, MaxGroups-1)
	}
	g := len(c.groups)
	c.groups = append(c.groups, group{r.Executables, r.Inherit, r.Pos})
	c.groupOf[key] = g
	return g, nil
}

// key is equal for patterns that match alike component by component.
func (p Pattern) key() string {
	var b strings.Builder
	for _, c := range p.Components {
		b.WriteByte('/')
		b.WriteString(c.key())
	}
	return b.String()
}

func (c Component) key() string {
	switch {
	case c.Deep:
		return "**"
	case c.Glob == nil:
		return "=" + c.Literal
	}
	b := []byte{'~'}
	for _, t := range c.Glob {
		if t.Star {
			b = append(b, '*')
			continue
		}
		b = append(b, '[')
		for _, w := range t.Set {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
	}
	return string(b)
}

func (c *compiler) pathSources() []source {
	var out []source
	for i := range c.rules {
		for _, p := range c.rules[i].Paths {
			out = append(out, source{p.Components, c.rules[i].speaker, c.rules[i].Access, !c.rules[i].Exact, c.rules[i].Pos})
		}
	}
	return out
}

func (c *compiler) programSources() []source {
	var out []source
	for g, info := range c.groups {
		for _, p := range info.patterns {
			out = append(out, source{p.Components, g, 1, false, info.pos})
		}
	}
	return out
}

// mask is the Out of a state of the program automaton: the groups that match.
func (c *compiler) mask(groups []match) uint32 {
	m := make(Mask, c.words)
	for _, g := range groups {
		m[g.owner/64] |= 1 << (g.owner % 64)
	}
	key := string(maskKey(nil, m))
	if i, ok := c.maskOf[key]; ok {
		return i
	}
	i := uint32(len(c.masks))
	c.masks = append(c.masks, m)
	c.maskOf[key] = i
	return i
}

// dropUnused leaves only the rows and masks that states lead to.
func (a *Automaton) dropUnused() {
	a.Rows = compact(&a.Paths, a.Rows)
	a.Masks = compact(&a.Programs, a.Masks)
}

func compact[T any](d *DFA, all []T) []T {
	number := map[uint32]uint32{}
	var used []T
	for i := range d.States {
		old := d.States[i].Out
		n, ok := number[old]
		if !ok {
			n = uint32(len(used))
			number[old] = n
			used = append(used, all[old])
		}
		d.States[i].Out = n
	}
	return used
}

// digest is a hash over everything that the kernel's tables are made of.
func digest(a *Automaton) [32]byte {
	h := sha256.New()
	word := func(v uint64) { _ = binary.Write(h, binary.LittleEndian, v) }
	for _, b := range []bool{a.AllowMounts, a.AllowMemfdExec, a.AuditMounts, a.AuditMemfdExec} {
		if b {
			word(1)
		} else {
			word(0)
		}
	}
	word(uint64(a.Groups))
	for _, l := range a.Layers {
		fmt.Fprintf(h, "%q %v\n", l.Policy, l.Audit)
	}
	h.Write(maskKey(nil, a.Inherit))
	for i := range a.Rows {
		h.Write(rowKey(&a.Rows[i]))
	}
	for _, m := range a.Masks {
		h.Write(maskKey(nil, m))
	}
	hashDFA(h, &a.Paths)
	hashDFA(h, &a.Programs)
	return [32]byte(h.Sum(nil))
}

func hashDFA(h hash.Hash, d *DFA) {
	var b []byte
	u32 := func(v uint32) { b = binary.LittleEndian.AppendUint32(b, v) }
	u32(uint32(d.Start))
	u32(uint32(len(d.States)))
	for i := range d.States {
		s := &d.States[i]
		u32(s.Out)
		u32(uint32(s.Default))
		u32(uint32(s.Glob))
		for _, n := range s.GlobNext {
			u32(uint32(n))
		}
		u32(uint32(len(s.Edges)))
		for _, e := range s.Edges {
			u32(uint32(len(e.Name)))
			b = append(b, e.Name...)
			u32(uint32(e.Next))
		}
		if len(b) > 1<<16 {
			h.Write(b)
			b = b[:0]
		}
	}
	for i := range d.Globs {
		b = append(b, d.Globs[i].key()...)
	}
	h.Write(b)
}

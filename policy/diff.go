package policy

import (
	"cmp"
	"errors"
	"slices"
)

// Limits of a comparison.
const (
	maxProduct  = 1 << 20 // pairs of states
	maxExamples = 3       // paths of one change
)

// Answer is what a subject meets: denied, allowed but reported, allowed.
type Answer uint8

// The answers, from the narrowest to the widest.
const (
	Denied Answer = iota
	Audited
	Allowed
)

// String is the word of the vocabulary.
func (a Answer) String() string { return [...]string{"deny", "audit", "allow"}[a] }

// Change is one kind of access that one kind of subject has under one automaton
// and not, or not in the same way, under the other.
type Change struct {
	Anybody bool    // all subjects change alike
	Subject Subject // otherwise an example: the smallest program that changes so
	Kind    Kind
	Old     Answer
	New     Answer
	Paths   []string // examples, at most 3, the shallowest that there are, smallest first
}

// Difference is all that two automata answer differently.
type Difference struct {
	Changes                    []Change
	OldMounts, NewMounts       Answer
	OldMemfdExec, NewMemfdExec Answer
}

// Diff compares what two automata answer, from old to new, over all paths and
// over the subjects that are nobody yet (the labelling exec), or of one program,
// or of one inherited program. The answers that only several programs together
// meet are not compared. The error is that the product is over its limit.
func Diff(old, new *Automaton) (*Difference, error) {
	d := &differ{old: old, new: new, rows: map[[2]uint32][]rowChange{}, index: map[changeKey]int{}}
	if err := d.subjects(); err != nil {
		return nil, err
	}
	err := product(&old.Paths, &new.Paths, d.pair)
	if err != nil {
		return nil, err
	}
	for i := range d.out {
		slices.SortFunc(d.out[i].Paths, smaller)
	}
	slices.SortStableFunc(d.out, func(a, b Change) int {
		return cmp.Or(smaller(a.Paths[0], b.Paths[0]), cmp.Compare(a.Kind, b.Kind))
	})
	return &Difference{
		Changes:      d.out,
		OldMounts:    answer(old.AllowMounts || old.AuditMounts, old.AuditMounts),
		NewMounts:    answer(new.AllowMounts || new.AuditMounts, new.AuditMounts),
		OldMemfdExec: answer(old.AllowMemfdExec || old.AuditMemfdExec, old.AuditMemfdExec),
		NewMemfdExec: answer(new.AllowMemfdExec || new.AuditMemfdExec, new.AuditMemfdExec),
	}, nil
}

func answer(allowed, audited bool) Answer {
	switch {
	case !allowed:
		return Denied
	case audited:
		return Audited
	}
	return Allowed
}

func smaller(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

type differ struct {
	old, new *Automaton
	who      []who
	rows     map[[2]uint32][]rowChange // what a pair of rows answers differently
	index    map[changeKey]int
	out      []Change
}

// who is one kind of subject: its masks under both automata, and an example.
type who struct {
	old, new Mask
	subject  Subject
}

type rowChange struct {
	who      int // -1: anybody
	kind     Kind
	old, new Answer
}

type changeKey rowChange

// subjects finds the kinds of subjects: programs that no automaton tells apart
// are one.
func (d *differ) subjects() error {
	seen := map[string]bool{}
	add := func(s Subject) {
		w := who{d.old.SubjectMask(s), d.new.SubjectMask(s), s}
		key := string(maskKey(maskKey(nil, w.old), w.new))
		if !seen[key] {
			seen[key] = true
			d.who = append(d.who, w)
		}
	}
	add(Subject{})
	var programs []string
	outs := map[[2]uint32]bool{}
	err := product(&d.old.Programs, &d.new.Programs, func(a, b StateID, path string) {
		out := [2]uint32{d.old.Programs.States[a].Out, d.new.Programs.States[b].Out}
		if !outs[out] {
			outs[out] = true
			programs = append(programs, path)
		}
	})
	slices.SortFunc(programs, smaller)
	for _, p := range programs {
		add(Subject{Programs: []string{p}})
	}
	for _, p := range programs {
		add(Subject{Inherited: []string{p}})
	}
	return err
}

// pair notes what differs on one path, the first of its pair of states.
func (d *differ) pair(a, b StateID, path string) {
	rows := [2]uint32{d.old.Paths.States[a].Out, d.new.Paths.States[b].Out}
	changes, ok := d.rows[rows]
	if !ok {
		changes = d.compare(rows)
		d.rows[rows] = changes
	}
	for _, c := range changes {
		i, ok := d.index[changeKey(c)]
		if !ok {
			i = len(d.out)
			d.index[changeKey(c)] = i
			change := Change{Anybody: c.who < 0, Kind: c.kind, Old: c.old, New: c.new}
			if c.who >= 0 {
				change.Subject = d.who[c.who].subject
			}
			d.out = append(d.out, change)
		}
		if len(d.out[i].Paths) < maxExamples {
			d.out[i].Paths = append(d.out[i].Paths, path)
		}
	}
}

func (d *differ) compare(rows [2]uint32) []rowChange {
	var out []rowChange
	for k := range Kind(NumKinds) {
		var some []rowChange
		for i, w := range d.who {
			c := rowChange{who: i, kind: k,
				old: answer(d.old.Judge(w.old, rows[0], k)), new: answer(d.new.Judge(w.new, rows[1], k))}
			if c.old != c.new {
				some = append(some, c)
			}
		}
		alike := len(some) == len(d.who)
		for _, c := range some {
			alike = alike && c.old == some[0].old && c.new == some[0].new
		}
		if alike {
			some[0].who = -1
			some = some[:1]
		}
		out = append(out, some...)
	}
	return out
}

// product visits every pair of states that one path leads to in a and b, with
// such a path of the fewest components.
func product(a, b *DFA, visit func(a, b StateID, path string)) error {
	type pair struct{ a, b StateID }
	seen := map[pair]bool{}
	var queue []pair
	var paths []string
	reach := func(p pair, path string) {
		if !seen[p] {
			seen[p] = true
			queue = append(queue, p)
			paths = append(paths, path)
		}
	}
	reach(pair{a.Start, b.Start}, "/")
	for i := 0; i < len(queue); i++ {
		if len(queue) > maxProduct {
			return errors.New("comparing: the policies are too different and too large: compare them part by part")
		}
		p, path := queue[i], paths[i]
		visit(p.a, p.b, path)
		if path == "/" {
			path = ""
		}
		for _, name := range tellingNames(a, p.a, b, p.b) {
			if len(path)+1+len(name) <= MaxPath {
				reach(pair{a.Step(p.a, name), b.Step(p.b, name)}, path+"/"+name)
			}
		}
	}
	return nil
}

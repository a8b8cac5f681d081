package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Limits of a comparison.
const (
	maxProduct  = 1 << 20 // pairs of states
	maxExamples = 3       // paths of one change
	maxSubjects = 1 << 14 // kinds of subjects that one pair of rows tells apart
)

var errTooDifferent = errors.New("comparing: the policies are too different and too large: compare them part by part")

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
	Subject Subject // otherwise an example: the fewest and smallest programs that change so
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

// Diff compares what two automata answer, from old to new, over all paths and all
// subjects: nobody (the labelling exec), each kind of program and of inherited
// program, and several together (a script and its interpreter) where they meet a
// change that none of them meets alone. The error is that it would take too much.
func Diff(old, new *Automaton) (*Difference, error) {
	d := &differ{old: old, new: new, rows: map[[2]uint32][]rowChange{}, index: map[changeKey]int{}, together: map[string]int{}}
	if err := d.subjects(); err != nil {
		return nil, err
	}
	if err := product(&old.Paths, &new.Paths, d.pair); err != nil {
		return nil, err
	}
	if d.err != nil {
		return nil, d.err
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
	singles  int                       // of who: nobody, one program, one inherited program
	who      []who                     // those, and then those of several
	together map[string]int            // the place in who of several
	rows     map[[2]uint32][]rowChange // what a pair of rows answers differently
	index    map[changeKey]int
	out      []Change
	err      error
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
	d.singles = len(d.who)
	return err
}

// several is the place in who of some of the singles together.
func (d *differ) several(members []int) int {
	key := fmt.Sprint(members)
	if i, ok := d.together[key]; ok {
		return i
	}
	var w who
	for _, i := range members {
		w.subject.Programs = append(w.subject.Programs, d.who[i].subject.Programs...)
		w.subject.Inherited = append(w.subject.Inherited, d.who[i].subject.Inherited...)
	}
	w.old, w.new = d.old.SubjectMask(w.subject), d.new.SubjectMask(w.subject)
	d.together[key] = len(d.who)
	d.who = append(d.who, w)
	return len(d.who) - 1
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

// compare is what a pair of rows answers differently.
func (d *differ) compare(rows [2]uint32) []rowChange {
	var out []rowChange
	for k := range Kind(NumKinds) {
		out = append(out, d.compareKind(&d.old.Rows[rows[0]][k], &d.new.Rows[rows[1]][k], k)...)
	}
	return out
}

// compareKind is compare for one kind of access. All that the answers depend on
// is which masks of the two rights a subject meets, and several together meet
// what any of them meets: so their unions are all the subjects that there are.
func (d *differ) compareKind(old, new *Right, k Kind) (out []rowChange) {
	single := make([]met, d.singles)
	members := map[met][]int{} // the first singles found that together meet this
	var subjects []met
	for i := range single {
		single[i] = met{old.meets(d.who[i].old), new.meets(d.who[i].new)}
		if members[single[i]] == nil {
			members[single[i]] = []int{i}
			subjects = append(subjects, single[i])
		}
	}
	alone := slices.Clone(subjects)
	for n := 0; n < len(subjects) && d.err == nil; n++ {
		for _, more := range alone {
			if both := subjects[n].or(more); members[both] == nil {
				members[both] = append(slices.Clone(members[subjects[n]]), members[more]...)
				subjects = append(subjects, both)
			}
		}
		if len(subjects) > maxSubjects {
			d.err = errTooDifferent
		}
	}
	change := func(m met) rowChange { return rowChange{-1, k, old.answer(m.old), new.answer(m.new)} }
	all := change(subjects[0])
	if !slices.ContainsFunc(subjects, func(m met) bool { return change(m) != all }) {
		if all.old != all.new {
			out = append(out, all)
		}
		return out
	}
	for i, m := range single {
		if c := change(m); c.old != c.new {
			c.who = i
			out = append(out, c)
		}
	}
	for _, m := range subjects[len(alone):] {
		c := change(m)
		if c.old != c.new && !anyPart(members[m], func(part []int) bool {
			var some met
			for _, i := range part {
				some = some.or(single[i])
			}
			return change(some) == c
		}) {
			c.who = d.several(members[m])
			out = append(out, c)
		}
	}
	return out
}

// met is which masks of an old and of a new right a subject meets, one bit each.
type met struct{ old, new uint32 }

func (m met) or(o met) met { return met{m.old | o.old, m.new | o.new} }

// meets is the masks of the right that t meets: Deny, the Grants, AuditDeny, the
// AuditGrants.
func (r *Right) meets(t Mask) (bits uint32) {
	for i, m := range slices.Concat([]Mask{r.Deny}, r.Grant, []Mask{r.AuditDeny}, r.AuditGrant) {
		if t.meets(m) {
			bits |= 1 << i
		}
	}
	return bits
}

// answer is the right's answer to a subject that meets those.
func (r *Right) answer(bits uint32) Answer {
	passes := func(grants int) bool {
		denied := bits&1 != 0
		bits >>= 1
		granted := bits&(1<<grants-1) == 1<<grants-1
		bits >>= grants
		return !denied && granted
	}
	allowed := passes(len(r.Grant))
	return answer(allowed, !passes(len(r.AuditGrant)))
}

// anyPart reports whether f holds for a part of a set that is not all of it.
func anyPart(set []int, f func([]int) bool) bool {
	for bits := 1; bits < 1<<len(set)-1; bits++ {
		var part []int
		for i, member := range set {
			if bits&(1<<i) != 0 {
				part = append(part, member)
			}
		}
		if f(part) {
			return true
		}
	}
	return false
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
			return errTooDifferent
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

package policy

import "slices"

// What a rule does to a policy's verdicts, worked out on automata in which each
// rule, or one rule against all others, is told apart. Nothing outside of Lint
// uses this.

// Bounds of the work, in states.
const (
	examineStates = 30_000  // of one automaton
	examineTotal  = 300_000 // of all
)

// examineTogether is the bound with all rules told apart; a test changes it.
var examineTogether = examineStates

// use is what was found about one rule.
type use struct {
	unused   bool   // without all that are unused, every verdict is the same
	by       *Rule  // the rule that decides instead, for example at path; nil: the default
	path     string // not set if it is used
	closedAt string // of an `only` rule: where nobody may do some of its access, and no `deny` for all says so
}

// voice is what the automaton is told of a rule, or of several of one speaker.
type voice struct {
	effect Effect
	group  int // -1: an empty list
	rule   int // -1: several
}

// examiner knows the policy's subjects.
type examiner struct {
	p      *Policy
	c      *compiler
	groups []int // of each rule
	masks  []Mask
	budget int
}

// examine finds the use of every rule. told is false if that would take too
// much: then what it says of single rules is still true.
func examine(p *Policy, a *Automaton) (uses []use, told bool) {
	e := &examiner{p: p, c: newCompiler([]*Policy{p}), budget: examineTotal}
	for i := range p.Rules {
		g, err := e.c.group(&p.Rules[i])
		if err != nil {
			return make([]use, len(p.Rules)), false
		}
		e.groups = append(e.groups, g)
	}
	e.masks = a.subjects()
	return e.rules()
}

// subjects is the masks of nobody, and of each kind of program, inherited or not.
func (a *Automaton) subjects() []Mask {
	out := []Mask{a.SubjectMask(Subject{})}
	for _, m := range a.Masks {
		now, kept := slices.Clone(m), slices.Clone(m)
		for w := range m {
			kept[w] &= a.Inherit[w]
		}
		now[0] |= 1
		kept[0] |= 1
		out = append(out, now, kept)
	}
	return out
}

// site is one way in which voices match together, with a path where they do.
type site struct {
	matched []match
	path    string
}

// sites are all the ways in which the voices match. ok is false if there are
// too many.
func (e *examiner) sites(sources []source, limit int) (out []site, ok bool) {
	dfa, err := build(sources, min(limit, e.budget), func(matched []match) uint32 {
		out = append(out, site{matched: slices.Clone(matched)})
		return uint32(len(out) - 1)
	})
	if err != nil {
		e.budget -= limit
		return nil, false
	}
	e.budget -= len(dfa.States)
	// The shortest path to each, breadth first.
	paths := make([]string, len(dfa.States))
	paths[dfa.Start] = "/"
	for queue := []StateID{dfa.Start}; len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		if at := &out[dfa.States[s].Out]; at.path == "" {
			at.path = paths[s]
		}
		prefix := paths[s]
		if prefix == "/" {
			prefix = ""
		}
		for _, name := range tellingNames(dfa, s, dfa, s) {
			if next := dfa.Step(s, name); paths[next] == "" && len(prefix)+1+len(name) <= MaxPath {
				paths[next] = prefix + "/" + name
				queue = append(queue, next)
			}
		}
	}
	// Where a glob matches every name, the set of those that it doesn't match is
	// no site.
	return slices.DeleteFunc(out, func(s site) bool { return s.path == "" }), true
}

// rules finds the use of every rule: first of what denies, so that of two rules
// that contradict each other it is the weaker that is unused; of two equal ones it
// is the later. All that are found unused can be removed at once.
func (e *examiner) rules() (uses []use, told bool) {
	uses, told = make([]use, len(e.p.Rules)), true
	var sources []source
	var voices []voice
	for i := range e.p.Rules {
		r := &e.p.Rules[i]
		voices = append(voices, voice{r.Effect, e.groups[i], i})
		for _, p := range r.Paths {
			sources = append(sources, source{p.Components, i, r.Access, !r.Exact, r.Pos})
		}
	}
	all, together := e.sites(sources, examineTogether)
	for _, i := range e.order() {
		sites := all
		if !together {
			if e.budget <= 0 {
				return uses, false
			}
			var ok bool
			if sites, voices, ok = e.against(i, uses); !ok {
				told = false
				continue
			}
		}
		uses[i] = e.rule(i, sites, voices, uses)
	}
	return uses, told
}

func (e *examiner) order() (out []int) {
	for _, effect := range []Effect{Deny, Only, Allow} {
		for i := len(e.p.Rules) - 1; i >= 0; i-- {
			if e.p.Rules[i].Effect == effect {
				out = append(out, i)
			}
		}
	}
	return out
}

// against is the sites of one rule and of all the others, taken together where
// they have one effect and group; those found unused are left out.
func (e *examiner) against(i int, uses []use) ([]site, []voice, bool) {
	r := &e.p.Rules[i]
	voices := []voice{{r.Effect, e.groups[i], i}}
	var sources []source
	number := map[voice]int{}
	for j := range e.p.Rules {
		o := &e.p.Rules[j]
		owner := 0
		if j != i {
			if uses[j].unused {
				continue
			}
			v := voice{o.Effect, e.groups[j], -1}
			n, ok := number[v]
			if !ok {
				n = len(voices)
				number[v] = n
				voices = append(voices, v)
			}
			owner = n
		}
		for _, p := range o.Paths {
			sources = append(sources, source{p.Components, owner, o.Access, !o.Exact, o.Pos})
		}
	}
	sites, ok := e.sites(sources, examineStates)
	return sites, voices, ok
}

// rule is the use of rule i at the sites.
func (e *examiner) rule(i int, sites []site, voices []voice, uses []use) use {
	found := use{unused: true}
	var kind Kind
	for _, s := range sites {
		mine := slices.IndexFunc(s.matched, func(m match) bool { return voices[m.owner].rule == i })
		if mine < 0 {
			continue
		}
		v := &voices[s.matched[mine].owner]
		for k := range Kind(NumKinds) {
			if !s.matched[mine].bits.Has(k) || !found.unused && (v.effect != Only || found.closedAt != "") {
				continue
			}
			at := e.hear(i, k, s.matched, voices, uses)
			if found.path == "" {
				found.path, kind = s.path, k
			}
			found.unused = found.unused && !at.matters(v)
			if v.effect == Only && found.closedAt == "" && at.nobody(v) {
				found.closedAt = s.path
			}
		}
	}
	if found.unused {
		found.by = e.decider(i, found.path, kind, uses)
	} else {
		found.path = ""
	}
	return found
}

// decider is the rule that decides for rule i's subjects where that is left out.
func (e *examiner) decider(i int, path string, k Kind, uses []use) *Rule {
	rest := *e.p
	rest.Rules = nil
	for j := range e.p.Rules {
		if j != i && !uses[j].unused {
			rest.Rules = append(rest.Rules, e.p.Rules[j])
		}
	}
	var s Subject
	for _, pat := range e.p.Rules[i].Executables {
		if program, ok := pat.example(); ok {
			s.Programs = []string{program}
			break
		}
	}
	_, rule := rest.decide(s, path, k)
	return rule
}

// heard is what the other voices say at a site about one kind of access.
type heard struct {
	masks             []Mask
	deny, only, allow Mask
	restricted        bool // another `only` rule matches
	open              bool // the default
}

func (e *examiner) hear(i int, k Kind, matched []match, voices []voice, uses []use) heard {
	words := (len(e.c.groups) + 63) / 64
	h := heard{e.masks, make(Mask, words), make(Mask, words), make(Mask, words), false, e.p.Default[k]}
	for _, m := range matched {
		v := &voices[m.owner]
		if v.rule == i || v.rule >= 0 && uses[v.rule].unused || !m.bits.Has(k) {
			continue
		}
		to := h.allow
		switch v.effect {
		case Deny:
			to = h.deny
		case Only:
			to, h.restricted = h.only, true
		}
		if v.group >= 0 {
			to[v.group/64] |= 1 << (v.group % 64)
		}
	}
	return h
}

// some reports whether a kind of program that meets none of `not` is in group g,
// or, if g is negative, meets `want`. A task of several programs is in all of
// their groups: so what one program avoids, several that each avoid it do.
func (h *heard) some(g int, want Mask, not ...Mask) bool {
	for _, m := range h.masks {
		in := m.meets(want)
		if g >= 0 {
			in = m[g/64]&(1<<(g%64)) != 0
		}
		if in && !slices.ContainsFunc(not, m.meets) {
			return true
		}
	}
	return false
}

// matters reports whether there is a subject whose verdict the voice changes.
func (h *heard) matters(v *voice) bool {
	if isNobody(h.deny) || v.group < 0 && v.effect != Only {
		return false
	}
	switch v.effect {
	case Deny:
		switch in := h.some(v.group, nil, h.deny); {
		case h.restricted:
			return in && h.some(-1, h.only, h.deny)
		case h.open:
			return in
		}
		return h.some(v.group, nil, h.deny) && h.some(-1, h.allow, h.deny)
	case Allow:
		return !h.restricted && !h.open && h.some(v.group, nil, h.deny, h.allow)
	}
	mine := make(Mask, len(h.deny))
	if v.group >= 0 {
		mine[v.group/64] |= 1 << (v.group % 64)
	}
	switch {
	case h.restricted:
		return h.some(-1, mine, h.deny, h.only)
	case h.open:
		return mine[0]&1 == 0 // it shuts out nobody's exec, if no one else
	}
	return h.some(-1, mine, h.deny, h.allow) || h.some(-1, h.allow, h.deny, mine)
}

// nobody reports whether an `only` voice and the others leave the access to no
// subject, although no `deny` is for all.
func (h *heard) nobody(v *voice) bool {
	if isNobody(h.deny) {
		return false
	}
	all := slices.Clone(h.only)
	if v.group >= 0 {
		all[v.group/64] |= 1 << (v.group % 64)
	}
	return !h.some(-1, all, h.deny)
}

// example is a path that the pattern matches.
func (p Pattern) example() (string, bool) {
	dfa, err := build([]source{{p.Components, 0, 1, false, p.Pos}}, examineStates, func(m []match) uint32 { return uint32(len(m)) })
	if err != nil {
		return "", false
	}
	found := ""
	err = product(dfa, dfa, func(s, _ StateID, path string) {
		if found == "" && dfa.States[s].Out == 1 {
			found = path
		}
	})
	return found, err == nil && found != ""
}

// runnable knows which programs anybody may execute.
type runnable struct {
	a     *Automaton
	masks []Mask
	known map[string]bool
}

// any reports whether anybody may execute a program that the pattern matches; it
// says yes where that would take too much to find out.
func (r *runnable) any(p Pattern) bool {
	key := p.key()
	if may, ok := r.known[key]; ok {
		return may
	}
	dfa, err := build([]source{{p.Components, 0, 1, false, p.Pos}}, examineStates, func(m []match) uint32 { return uint32(len(m)) })
	may := err != nil || len(r.a.Paths.States) > examineStates/10
	if !may {
		err = product(dfa, &r.a.Paths, func(s, path StateID, _ string) {
			may = may || dfa.States[s].Out == 1 && r.somebody(&r.a.Rows[r.a.Paths.States[path].Out][Exec])
		})
		may = may || err != nil
	}
	r.known[key] = may
	return may
}

// somebody reports whether a right of one layer is anybody's.
func (r *runnable) somebody(right *Right) bool {
	if isNobody(right.Deny) {
		return false
	}
	for _, grant := range right.Grant {
		if h := (heard{masks: r.masks}); !h.some(-1, grant, right.Deny) {
			return false
		}
	}
	return true
}

package policy

// Running an automaton: the reference algorithm that the kernel's C must match.

// Step is the state after one name.
func (d *DFA) Step(s StateID, name string) StateID {
	st := &d.States[s]
	lo, hi := 0, len(st.Edges)
	for lo < hi {
		mid := (lo + hi) / 2
		switch e := &st.Edges[mid]; {
		case e.Name == name:
			return e.Next
		case e.Name < name:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	if st.Glob >= 0 {
		if class := d.Globs[st.Glob].Run(name); class >= 0 {
			return st.GlobNext[class]
		}
	}
	return st.Default
}

// Run is the state that an absolute path leads to; ok is false if the path is
// not one that the kernel could have: relative, with an empty component, or
// with a name of more than MaxName bytes.
func (d *DFA) Run(path string) (s StateID, ok bool) {
	if path == "" || path[0] != '/' {
		return 0, false
	}
	s = d.Start
	for _, name := range splitPath(path) {
		if name == "" || len(name) > MaxName {
			return 0, false
		}
		s = d.Step(s, name)
	}
	return s, true
}

// Run is the class of a name, or -1.
func (g *Glob) Run(name string) int32 {
	s := 0
	for i := 0; i < len(name); i++ {
		if int32(s) == g.Dead {
			return -1
		}
		s = int(g.Next[s*g.Classes+int(g.ByteClass[name[i]])])
	}
	return g.Class[s]
}

func (m Mask) meets(other Mask) bool {
	for w := range min(len(m), len(other)) {
		if m[w]&other[w] != 0 {
			return true
		}
	}
	return false
}

// SubjectMask is the groups that a subject is in: those of its programs, those
// with `inherit: true` of the programs it inherited, and group 0.
func (a *Automaton) SubjectMask(s Subject) Mask {
	t := make(Mask, a.Words)
	for _, p := range s.Programs {
		for w, bits := range a.programMask(p) {
			t[w] |= bits
		}
	}
	for _, p := range s.Inherited {
		for w, bits := range a.programMask(p) {
			t[w] |= bits & a.Inherit[w]
		}
	}
	t[0] |= 1
	return t
}

// programMask is the groups that a program's path is in: none if it is no path.
func (a *Automaton) programMask(path string) Mask {
	s, ok := a.Programs.Run(path)
	if !ok {
		return nil
	}
	return a.Masks[a.Programs.States[s].Out]
}

// Judge applies a row to a subject's mask.
func (a *Automaton) Judge(t Mask, row uint32, k Kind) (allowed, audited bool) {
	r := &a.Rows[row][k]
	if !passes(t, r.Deny, r.Grant) {
		return false, false
	}
	return true, !passes(t, r.AuditDeny, r.AuditGrant)
}

func passes(t, deny Mask, grants []Mask) bool {
	if t.meets(deny) {
		return false
	}
	for _, g := range grants {
		if !t.meets(g) {
			return false
		}
	}
	return true
}

// Decide is policy.Decide, answered by the automaton. What is no path is denied.
func (a *Automaton) Decide(s Subject, path string, k Kind) (allowed, audited bool) {
	state, ok := a.Paths.Run(path)
	if !ok {
		return false, false
	}
	return a.Judge(a.SubjectMask(s), a.Paths.States[state].Out, k)
}

// Gain reports whether content that moves from a path with the rights old to one
// with the rights new could become open to a subject that had no right to read,
// modify or execute it. Only what is enforced counts. It may report a gain where
// there is none for any subject that exists, never the other way round: for each
// of these kinds there is none if new denies everybody, or denies all that old
// denies and has, for each grant of old, one that is a subset of it.
func Gain(old, new Row) bool {
	for _, k := range [...]Kind{Read, Modify, Exec} {
		if rightGains(&old[k], &new[k]) {
			return true
		}
	}
	return false
}

func rightGains(from, to *Right) bool {
	if len(to.Deny) > 0 && to.Deny[0]&1 != 0 {
		return false // nobody has it there
	}
	if !subsetMask(from.Deny, to.Deny) {
		return true
	}
	for _, g := range from.Grant {
		implied := false
		for _, h := range to.Grant {
			implied = implied || subsetMask(h, g)
		}
		if !implied {
			return true
		}
	}
	return false
}

func subsetMask(a, b Mask) bool {
	for w := range a {
		other := uint64(0)
		if w < len(b) {
			other = b[w]
		}
		if a[w]&^other != 0 {
			return false
		}
	}
	return true
}

// MoveFile reports whether a file may move or be linked from a path in state
// old to one in state new: no subject gains a right on its content.
func (a *Automaton) MoveFile(old, new StateID) bool {
	o, n := a.Paths.States[old].Out, a.Paths.States[new].Out
	return o == n || !Gain(a.Rows[o], a.Rows[n])
}

// MoveDirectory reports whether a directory with all that is below it may move:
// the states are equal, so every suffix has the same rights, or both subtrees
// are uniform and no subject gains.
func (a *Automaton) MoveDirectory(old, new StateID) bool {
	if old == new {
		return true
	}
	return a.Paths.States[old].Final && a.Paths.States[new].Final && a.MoveFile(old, new)
}

package policy

import "strings"

// Need is something that a policy wants enforced, and the place that says so.
type Need struct {
	Access    AccessSet // kinds of access that it takes from somebody
	Mounts    bool      // frozen mounts
	MemfdExec bool      // no execution of files without a path
	Pos       Position
}

// Needs is all that a policy wants enforced: what its rules deny, or keep for
// some, what its default denies, and what it does not allow. Whether a kernel
// can is for others to say.
func (p *Policy) Needs() []Need {
	var denied AccessSet
	for k := range Kind(NumKinds) {
		if !p.Default[k] {
			denied |= 1 << k
		}
	}
	var out []Need
	if first := (Need{denied, !p.Mounts, !p.MemfdExec, p.Pos}); denied != 0 || first.Mounts || first.MemfdExec {
		out = append(out, first)
	}
	for i := range p.Rules {
		if r := &p.Rules[i]; r.Effect != Allow {
			out = append(out, Need{Access: r.Access, Pos: r.Pos})
		}
	}
	return out
}

// Meet is what two needs have in common, at the place of n.
func (n Need) Meet(o Need) (Need, bool) {
	both := Need{n.Access & o.Access, n.Mounts && o.Mounts, n.MemfdExec && o.MemfdExec, n.Pos}
	return both, both.Access != 0 || both.Mounts || both.MemfdExec
}

// String is the need in the words of the language.
func (n Need) String() string {
	var words []string
	if n.Access != 0 {
		words = append(words, n.Access.String())
	}
	if n.Mounts {
		words = append(words, "mounts: deny")
	}
	if n.MemfdExec {
		words = append(words, "memfdExec: deny")
	}
	return strings.Join(words, ", ")
}

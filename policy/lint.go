package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Lint finds what is allowed to be written but is hardly meant. Everything that
// it reports is true of the policy alone; what it can't tell it leaves out.
// Includes are to be resolved first.
func Lint(p *Policy) Diagnostics {
	var out Diagnostics
	warn := func(pos Position, hint, format string, args ...any) {
		out = append(out, Diagnostic{Warning: true, Pos: pos, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		if other := coveredBy(p, i); other != nil {
			warn(r.Pos, "remove one of the two", "the rule is never used: the `%s` rule at %s decides everything that it names", effectWords[other.Effect], other.Pos)
			continue
		}
		if r.Effect == Only && len(r.Executables) == 0 && r.Access.Has(Read) {
			warn(r.Pos, "name a program if one needs it; write `effect: deny` if none does", "nobody may reach what the rule names")
		}
		if r.Effect == Only && !p.Default[Exec] {
			for _, e := range r.Executables {
				if path, ok := e.name(); ok && !p.mayRun(path) {
					warn(e.Pos, "allow exec of it, or correct its name", "no rule lets %s be executed", path)
				}
			}
		}
		for _, pat := range slices.Concat(r.Paths, r.Executables) {
			if to := linked(pat); to != "" && !p.speaksOf(r, pat, to) {
				warn(pat.Pos, "name "+to+" too", "%s is a symbolic link in most images, and paths are judged after links are followed", pat.Text)
			}
		}
	}
	return out
}

// coveredBy is a rule that always decides before or like rule i, or nil: a deny
// for everybody on all of its paths, or a rule of its own effect that says as
// much and more.
func coveredBy(p *Policy, i int) *Rule {
	r := &p.Rules[i]
	for j := range p.Rules {
		o := &p.Rules[j]
		same := o.Effect == r.Effect && r.Effect != Only
		if j == i || o.Access&r.Access != r.Access || o.Listed && !sameWho(o, r) || o.Effect != Deny && !same || o.Exact && !r.Exact {
			continue
		}
		if !pathsCover(o, r) || same && j > i && pathsCover(r, o) && r.Access == o.Access {
			continue // of two equal rules the second is reported
		}
		if o.Effect == Deny && o.Listed && r.Effect != Deny && r.Effect != Allow {
			continue
		}
		return o
	}
	return nil
}

func sameWho(a, b *Rule) bool {
	return a.Listed == b.Listed && a.Inherit == b.Inherit && slices.EqualFunc(a.Executables, b.Executables,
		func(x, y Pattern) bool { return x.key() == y.key() })
}

// pathsCover reports whether a names everything that b names, as far as that
// can be told by letting a's patterns match b's own components.
func pathsCover(a, b *Rule) bool {
	for _, want := range b.Paths {
		if !slices.ContainsFunc(a.Paths, func(have Pattern) bool { return have.covers(want, !a.Exact) }) {
			return false
		}
	}
	return true
}

// covers reports whether p, component by component, matches all that q does.
func (p Pattern) covers(q Pattern, below bool) bool {
	if len(p.Components) > len(q.Components) || !below && len(p.Components) != len(q.Components) {
		return false
	}
	for i, c := range p.Components {
		o := q.Components[i]
		switch {
		case c.Deep || o.Deep:
			if c.Deep != o.Deep {
				return false
			}
		case o.Glob == nil:
			if !c.Match(o.Literal) {
				return false
			}
		case !slices.Equal(c.Glob, o.Glob):
			return false
		}
	}
	return true
}

// name is the one path that the pattern matches, if it has no glob.
func (p Pattern) name() (string, bool) {
	var b strings.Builder
	for _, c := range p.Components {
		if c.Deep || c.Glob != nil {
			return "", false
		}
		b.WriteString("/" + c.Literal)
	}
	return b.String(), b.Len() > 0
}

// mayRun reports whether anybody may execute a program.
func (p *Policy) mayRun(path string) bool {
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Effect != Deny && r.applies(path, Exec) && (!r.Listed || len(r.Executables) > 0) {
			return true
		}
	}
	return p.Default[Exec]
}

// linked is where a path leads on images that have merged /bin, /sbin and /lib
// into /usr, and /var/run into /run; "" if it is not such a path.
func linked(p Pattern) string {
	for from, to := range map[string]string{"/bin": "/usr/bin", "/sbin": "/usr/sbin", "/lib": "/usr/lib", "/lib32": "/usr/lib32",
		"/lib64": "/usr/lib64", "/var/run": "/run", "/var/lock": "/run/lock"} {
		if p.Text == from || strings.HasPrefix(p.Text, from+"/") {
			return to + strings.TrimPrefix(p.Text, from)
		}
	}
	return ""
}

// speaksOf reports whether the policy also names where a link leads, for the
// same effect.
func (p *Policy) speaksOf(r *Rule, link Pattern, to string) bool {
	ps, err := ParsePattern(to, link.Pos)
	if err != nil {
		return true
	}
	for i := range p.Rules {
		o := &p.Rules[i]
		if o.Effect != r.Effect {
			continue
		}
		for _, have := range slices.Concat(o.Paths, o.Executables) {
			if slices.ContainsFunc(ps, func(q Pattern) bool { return have.covers(q, true) }) {
				return true
			}
		}
	}
	return false
}

package policy

import (
	"fmt"
	"slices"
	"strings"
)

// Lint finds what is allowed to be written but is hardly meant. Everything that
// it reports is true of the policy alone, and worked out on its automata: a rule
// is unused if the policy without it gives every verdict that it gives with it.
// Includes are to be resolved first.
func Lint(p *Policy) Diagnostics {
	var out Diagnostics
	warn := func(pos Position, hint, format string, args ...any) {
		out = append(out, Diagnostic{Warning: true, Pos: pos, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	a, err := Compile([]*Policy{p})
	if err != nil {
		return nil // reported by whoever compiles it
	}
	uses, told := examine(p, a)
	if !told {
		warn(p.Pos, "split the policy", "unused rules are not looked for: its globs together match in too many ways")
	}
	programs := &runnable{a, a.subjects(), map[string]bool{}}
	for i := range p.Rules {
		r := &p.Rules[i]
		switch u := uses[i]; {
		case u.closedAt != "" && len(r.Executables) == 0 && r.Access.Has(Read):
			warn(r.Pos, "name a program if one needs it; write `effect: deny` if none does", "nobody may reach what the rule names, such as %s", u.closedAt)
		case u.closedAt != "" && len(r.Executables) > 0:
			warn(r.Pos, "let one of the programs through, or write `effect: deny`", "nobody may do all of this at %s: `deny` rules are for every program that the `only` rules name", u.closedAt)
		case u.unused && u.by != nil:
			warn(r.Pos, "remove one of the two", "the rule is never used: where it matches, others decide alike or before it, such as the `%s` rule at %s for %s", u.by.Effect, u.by.Pos, u.path)
			continue
		case u.unused && r.Effect == Allow:
			warn(r.Pos, "remove it", "the rule is never used: the default allows the same")
			continue
		} // a deny that repeats the default guards against rules to come
		if r.Effect == Only && !p.Default[Exec] {
			for _, e := range r.Executables {
				if !programs.any(e) {
					warn(e.Pos, "allow exec of it, or correct its name", "no rule lets %s be executed", e.Text)
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

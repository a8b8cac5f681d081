package policy

import "strings"

// splitPath is the components of an absolute path; "/" has none.
func splitPath(path string) []string {
	path = strings.TrimPrefix(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// Match reports whether the pattern matches the whole path.
func (p Pattern) Match(path string) bool { return p.match(splitPath(path), false) }

// MatchBelow reports whether the pattern matches the path or a directory above it.
func (p Pattern) MatchBelow(path string) bool { return p.match(splitPath(path), true) }

// match follows every way to read the names at once: at[i] says that the first
// i components of the pattern can match the names so far.
func (p Pattern) match(names []string, below bool) bool {
	end := len(p.Components)
	at := make([]bool, end+1)
	at[0] = true
	p.skipDeep(at)
	for _, name := range names {
		if below && at[end] {
			return true
		}
		next := make([]bool, end+1)
		for i, c := range p.Components {
			switch {
			case !at[i]:
			case c.Deep:
				next[i] = true
			case c.Match(name):
				next[i+1] = true
			}
		}
		at = next
		p.skipDeep(at)
	}
	return at[end]
}

// skipDeep lets a `**` match no component.
func (p Pattern) skipDeep(at []bool) {
	for i, c := range p.Components {
		if at[i] && c.Deep {
			at[i+1] = true
		}
	}
}

// Match reports whether the component, not a `**`, matches a name.
func (c Component) Match(name string) bool {
	if c.Glob == nil {
		return c.Literal == name
	}
	// star is the last `*` passed and from the byte where its match ends: when
	// stuck, let it take one byte more.
	i, j, star, from := 0, 0, -1, 0
	for j < len(name) {
		switch {
		case i < len(c.Glob) && c.Glob[i].Star:
			star, from = i, j
			i++
		case i < len(c.Glob) && c.Glob[i].Set.Has(name[j]):
			i++
			j++
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	for i < len(c.Glob) && c.Glob[i].Star {
		i++
	}
	return i == len(c.Glob)
}

// applies reports whether the rule speaks of the path and the kind of access.
func (r *Rule) applies(path string, k Kind) bool {
	if !r.Access.Has(k) {
		return false
	}
	for _, p := range r.Paths {
		if r.Exact && p.Match(path) || !r.Exact && p.MatchBelow(path) {
			return true
		}
	}
	return false
}

// names reports whether the rule speaks of the subject.
func (r *Rule) names(s Subject) bool {
	if !r.Listed {
		return true
	}
	any := func(programs []string) bool {
		for _, program := range programs {
			for _, p := range r.Executables {
				if p.Match(program) {
					return true
				}
			}
		}
		return false
	}
	return any(s.Programs) || r.Inherit && any(s.Inherited)
}

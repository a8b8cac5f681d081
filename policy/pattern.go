package policy

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of a path pattern.
const (
	MaxName       = 255  // bytes of one component
	MaxPath       = 4095 // bytes of a pattern or a path
	MaxExpansions = 4096 // patterns that the braces of one text may give
)

// ParsePattern reads an absolute path pattern. Within a component `*` matches
// any bytes, `?` one byte, `[a-z]` and `[!x]` one byte of a class; `**` as a
// whole component matches any number of components, none included; `{a,b}`
// stands for each of its alternatives, which may hold globs and slashes; a
// backslash takes the next byte literally. The errors say what is wrong and
// what to write instead.
func ParsePattern(text string, pos Position) ([]Pattern, error) {
	if len(text) > MaxPath {
		return nil, fmt.Errorf("path of %d bytes: at most %d are possible", len(text), MaxPath)
	}
	texts, err := expandBraces(text)
	if err != nil {
		return nil, err
	}
	out := make([]Pattern, 0, len(texts))
	for _, t := range texts {
		p, err := parsePath(t)
		if err != nil {
			return nil, err
		}
		p.Text, p.Pos = text, pos
		out = append(out, p)
	}
	return out, nil
}

// expandBraces replaces every {a,b} by its alternatives.
func expandBraces(text string) ([]string, error) {
	open, parts, end, err := firstBraces(text)
	if err != nil {
		return nil, err
	}
	if open < 0 {
		return []string{text}, nil
	}
	tails, err := expandBraces(text[end:])
	if err != nil {
		return nil, err
	}
	var out []string
	for _, part := range parts {
		heads, err := expandBraces(part)
		if err != nil {
			return nil, err
		}
		if len(out)+len(heads)*len(tails) > MaxExpansions {
			return nil, fmt.Errorf("braces give more than %d paths: write fewer alternatives", MaxExpansions)
		}
		for _, h := range heads {
			for _, t := range tails {
				out = append(out, text[:open]+h+t)
			}
		}
	}
	return out, nil
}

// firstBraces finds the first {…} of text: where it opens, its alternatives,
// and where the text goes on. open is -1 if there is none.
func firstBraces(text string) (open int, parts []string, end int, err error) {
	open = -1
	depth, from := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '[':
			if j := classEnd(text, i); j > 0 {
				i = j
			}
		case '{':
			if depth++; depth == 1 {
				open, from = i, i+1
			}
		case ',':
			if depth == 1 {
				parts = append(parts, text[from:i])
				from = i + 1
			}
		case '}':
			if depth == 0 {
				return 0, nil, 0, errors.New("`}` without `{`: write `\\}` for the character itself")
			}
			if depth--; depth == 0 {
				return open, append(parts, text[from:i]), i + 1, nil
			}
		}
	}
	if depth > 0 {
		return 0, nil, 0, errors.New("`{` is not closed: write `\\{` for the character itself")
	}
	return -1, nil, 0, nil
}

// classEnd is the index of the `]` that ends the class opened at i, or -1.
func classEnd(text string, i int) int {
	j := i + 1
	if j < len(text) && (text[j] == '!' || text[j] == '^') {
		j++
	}
	for first := true; j < len(text); first = false {
		switch {
		case text[j] == '\\':
			j++
		case text[j] == ']' && !first:
			return j
		case text[j] == '/':
			return -1
		}
		j++
	}
	return -1
}

// escapeGlobs is the pattern that matches a name only.
func escapeGlobs(name string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "{", `\{`, "}", `\}`).Replace(name)
}

func parsePath(text string) (Pattern, error) {
	switch {
	case text == "":
		return Pattern{}, errors.New("empty path: write an absolute path such as /data")
	case text[0] != '/':
		return Pattern{}, fmt.Errorf("relative path %q: write it from the root of the container, as /%s", text, text)
	case text == "/":
		return Pattern{}, nil
	case strings.HasSuffix(text, "/"):
		return Pattern{}, fmt.Errorf("path %q ends in a slash: write %q, which covers the directory and everything below", text, strings.TrimRight(text, "/"))
	}
	var p Pattern
	for _, part := range strings.Split(text[1:], "/") {
		switch part {
		case "":
			return Pattern{}, fmt.Errorf("path %q has an empty component: write one slash", text)
		case ".", "..":
			return Pattern{}, fmt.Errorf("path %q has a component %q: write the path without it", text, part)
		}
		c, err := parseComponent(part)
		if err != nil {
			return Pattern{}, fmt.Errorf("path %q: %w", text, err)
		}
		if n := len(p.Components); c.Deep && n > 0 && p.Components[n-1].Deep {
			continue
		}
		p.Components = append(p.Components, c)
	}
	return p, nil
}

func parseComponent(part string) (Component, error) {
	if part == "**" {
		return Component{Deep: true}, nil
	}
	if strings.Contains(part, "**") {
		return Component{}, fmt.Errorf("`**` in %q is not a whole component: write `*` within a name, `/**/` between names", part)
	}
	var tokens []Token
	for i := 0; i < len(part); i++ {
		var set ByteSet
		switch part[i] {
		case '*':
			tokens = append(tokens, Token{Star: true})
			continue
		case '?':
			set = anyByte()
		case '[':
			end := classEnd(part, i)
			if end < 0 {
				return Component{}, errors.New("`[` is not closed: write `\\[` for the character itself")
			}
			var err error
			if set, err = parseClass(part[i+1 : end]); err != nil {
				return Component{}, err
			}
			i = end
		case '\\':
			if i++; i == len(part) {
				return Component{}, errors.New("backslash at the end of a component: write two for the character itself")
			}
			set.Add(part[i])
		case 0:
			return Component{}, errors.New("a NUL byte: no path has one")
		default:
			set.Add(part[i])
		}
		tokens = append(tokens, Token{Set: set})
	}
	least := 0 // bytes of a name that it matches
	for _, t := range tokens {
		if !t.Star {
			least++
		}
	}
	if least > MaxName {
		return Component{}, fmt.Errorf("component of %d bytes: no name has more than %d", least, MaxName)
	}
	return component(tokens), nil
}

// component makes a literal of tokens that match one name only.
func component(tokens []Token) Component {
	literal := make([]byte, 0, len(tokens))
	for _, t := range tokens {
		b, one := t.Set.single()
		if t.Star || !one {
			return Component{Glob: tokens}
		}
		literal = append(literal, b)
	}
	return Component{Literal: string(literal)}
}

// anyByte is every byte that a name can have.
func anyByte() ByteSet {
	s := ByteSet{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}
	s[0] &^= 1<<0 | 1<<'/'
	return s
}

// parseClass reads what is between the brackets.
func parseClass(text string) (ByteSet, error) {
	negate := text[0] == '!' || text[0] == '^'
	if negate {
		text = text[1:]
	}
	var s ByteSet
	next := func(i int) (byte, int) {
		if text[i] == '\\' && i+1 < len(text) {
			i++
		}
		return text[i], i + 1
	}
	for i := 0; i < len(text); {
		var lo byte
		lo, i = next(i)
		hi := lo
		if i+1 < len(text) && text[i] == '-' {
			hi, i = next(i + 1)
		}
		if hi < lo {
			return s, fmt.Errorf("class range %q-%q runs backwards", lo, hi)
		}
		for b := int(lo); b <= int(hi); b++ {
			s.Add(byte(b))
		}
	}
	all := anyByte()
	for w := range s {
		if negate {
			s[w] = ^s[w]
		}
		s[w] &= all[w]
	}
	if s == (ByteSet{}) {
		return s, fmt.Errorf("class [%s] matches nothing", text)
	}
	return s, nil
}

// single returns the only byte of the set, if it has just one.
func (s ByteSet) single() (byte, bool) {
	found, n := byte(0), 0
	for b := range 256 {
		if s.Has(byte(b)) {
			found = byte(b)
			n++
		}
	}
	return found, n == 1
}

package policy

import "fmt"

// Policy is one checked policy: what a document of a policy file means. It is
// immutable after loading.
type Policy struct {
	Name      string
	Audit     bool           // mode: audit
	Default   [NumKinds]bool // true: allow
	Rules     []Rule         // includes already resolved and in front
	Mounts    bool           // mounts: allow
	MemfdExec bool           // memfdExec: allow
	Variants  []Variant      // other rules for some containers (Bomfather's `container =`)
	Include   []Include      // policies whose rules come in; empty once a Set has resolved it
	And       *Policy        // a layer that holds with this one: what rules of one layer can't say (Bomfather's can_run)
	Pos       Position       // of the document
}

// Include names a policy that another one takes its rules from.
type Include struct {
	Name string
	Pos  Position
}

// Effect is what a rule does.
type Effect uint8

// The effects.
const (
	Allow Effect = iota
	Deny
	Only
)

// Rule is one rule. It applies to a path if one of Paths matches it (unless
// Exact: or matches a directory above it), and to a subject as Subject says.
type Rule struct {
	Effect      Effect
	Paths       []Pattern
	Access      AccessSet
	Exact       bool
	Listed      bool      // executables was given (it may be empty: nobody)
	Executables []Pattern // always matched exactly: the whole path of a program
	Inherit     bool
	Pos         Position
}

// Position is a place in a file, lines and columns counted from 1.
type Position struct {
	File         string
	Line, Column int
}

// String is file:line:column.
func (p Position) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Pattern is an absolute path pattern, normalised: no empty component, no "."
// and no "..". The pattern "/" has no components. Braces are expanded while
// parsing: one text may give several Patterns.
type Pattern struct {
	Text       string
	Components []Component
	Pos        Position
}

// Component is one component of a pattern: any number of names (**), one
// literal name, or one glob.
type Component struct {
	Deep    bool    // **: zero or more components; Literal and Glob are empty
	Literal string  // exact name, if Glob is nil
	Glob    []Token // at least one token that is not a literal byte
}

// Token matches bytes of a name: Star any number of any bytes, otherwise one
// byte of Set. Names are bytes: no locale, no case folding. A leading dot is
// not special.
type Token struct {
	Star bool
	Set  ByteSet
}

// ByteSet is a set of byte values.
type ByteSet [4]uint64

// Has reports whether b is in the set.
func (s ByteSet) Has(b byte) bool { return s[b>>6]&(1<<(b&63)) != 0 }

// Add puts b into the set.
func (s *ByteSet) Add(b byte) { s[b>>6] |= 1 << (b & 63) }

// String is the effect's word.
func (e Effect) String() string {
	if int(e) < len(effectWords) {
		return effectWords[e]
	}
	return "unknown"
}

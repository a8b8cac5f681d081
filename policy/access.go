package policy

import (
	"fmt"
	"strings"
)

// Kind is one thing that can be done to a path. The kernel judges exactly
// these; the words of a policy file map to sets of them (AccessSet).
type Kind uint8

// The kinds, in the order in which the kernel's tables hold them.
const (
	Read   Kind = iota // open for reading, list a directory
	Modify             // open for writing, truncate, O_TRUNC, append
	Create             // create, mkdir, mknod, symlink, link target, rename target
	Delete             // unlink, rmdir, rename source
	Attr               // chmod, chown, extended attributes, times
	Exec               // execve and mapping executable

	NumKinds = 6
)

// AccessSet is a set of kinds, bit 1<<Kind.
type AccessSet uint8

// The shorthands of the language.
const (
	Write     = AccessSet(1<<Modify | 1<<Create | 1<<Delete | 1<<Attr)
	AllAccess = AccessSet(1<<NumKinds - 1)
)

// Has reports whether k is in the set.
func (s AccessSet) Has(k Kind) bool { return s&(1<<k) != 0 }

var kindNames = [NumKinds]string{"read", "modify", "create", "delete", "attr", "exec"}

// String is the word of the language for k.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// String is the words for a set, the shorthand `write` where it fits.
func (s AccessSet) String() string {
	var words []string
	if s&Write == Write {
		words = append(words, "write")
		s &^= Write
	}
	for k := range Kind(NumKinds) {
		if s.Has(k) {
			words = append(words, k.String())
		}
	}
	return strings.Join(words, ", ")
}

// KindOf is the kind for one word of the language that names a single one.
func KindOf(word string) (Kind, error) {
	for k := range Kind(NumKinds) {
		if k.String() == word {
			return k, nil
		}
	}
	return 0, fmt.Errorf("unknown access %q: write %s", word, choices(kindNames[:]))
}

package policy

// Automaton is what one or more layers compile to: a minimal deterministic
// automaton over path components for paths, a second one for the paths of
// programs, and the rights rows that the first one's states lead to. It is
// immutable, free of pointers into the policies, and deterministic: equal
// layers give equal bytes and an equal Digest.
type Automaton struct {
	Digest [32]byte
	Layers []LayerInfo

	// Groups is the number of subject groups, group 0 included. A group is
	// one distinct (executables, inherit) pair of the rules; group 0 is
	// "anybody" and is in every subject's mask. Words is the number of 64-bit
	// words of each mask.
	Groups, Words int

	Paths    DFA   // State.Out indexes Rows
	Rows     []Row // deduplicated
	Programs DFA   // State.Out indexes Masks
	Masks    []Mask
	Inherit  Mask // the groups whose rules say `inherit: true`

	// AllowMounts and AllowMemfdExec hold only if every layer allows them.
	AllowMounts, AllowMemfdExec bool
	// AuditMounts and AuditMemfdExec: only audit layers forbid it (allow, report).
	AuditMounts, AuditMemfdExec bool
}

// LayerInfo names one layer, in the order in which they were given.
type LayerInfo struct {
	Policy string // metadata.name
	Audit  bool   // mode: audit
}

// Mask is a set of subject groups, Words words, group g at bit g%64 of word g/64.
type Mask []uint64

// Row is the rights on a path, one entry per Kind.
type Row [NumKinds]Right

// Right says which subjects may do one kind of access. With T the mask of the
// subject (group 0 always set), the access is denied if T meets Deny or if it
// fails to meet any one of Grant; else it is reported if T meets AuditDeny or
// fails to meet any one of AuditGrant. Normal form: a Grant that holds group 0
// is left out; a right nobody has is Deny={0} and no Grant; Grants are sorted
// and distinct. The zero Right (nil Deny, no Grant) allows everybody.
type Right struct {
	Deny       Mask
	Grant      []Mask
	AuditDeny  Mask
	AuditGrant []Mask
}

// StateID is an index into DFA.States.
type StateID uint32

// DFA is a minimal automaton over path components. A path is matched by
// starting at Start (the state of "/") and taking one step per component.
type DFA struct {
	Start  StateID
	States []State
	Globs  []Glob
}

// State is where a path prefix leads. A step with the component name takes the
// edge in Edges with exactly that name; else, if Glob >= 0, runs
// Globs[Glob] over the bytes of the name and takes GlobNext[class] when it
// ends in a class >= 0; else takes Default.
type State struct {
	Out      uint32
	Final    bool // every suffix leads to this same Out: no further name need be read
	Edges    []Edge
	Glob     int32 // -1: none
	GlobNext []StateID
	Default  StateID
}

// Edge is a step on one literal name.
type Edge struct {
	Name string // 1 to 255 bytes, no '/' and no NUL
	Next StateID
}

// Glob is a byte automaton that sorts names into classes. Byte b in state s
// leads to Next[int(s)*Classes+int(ByteClass[b])]. State 0 is the start;
// Class[s] is the class of a name that ends in s, or -1. A state that can
// never reach a class >= 0 is Dead (its number), or Dead is -1 if there is none.
type Glob struct {
	ByteClass [256]uint8
	Classes   int
	Next      []uint16
	Class     []int32
	Dead      int32
}

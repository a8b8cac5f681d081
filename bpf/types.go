package bpf

import (
	"time"

	"github.com/dunnage-project/dunnage/policy"
)

// Instance is one start of a container. Never reused while the kernel runs.
type Instance uint64

// Table is one installed automaton. Never reused while the kernel runs.
type Table uint64

// NamespaceID is the 64-bit id of a mount namespace (mnt_namespace.seq, from
// 6.18 ns_common.ns_id): unlike the inode number never reused within a boot.
type NamespaceID uint64

// BindingState says how far a binding has come.
type BindingState uint8

// The states of a binding.
const (
	Armed    BindingState = iota + 1 // until the entrypoint's exec
	Enforced                         // from then on
)

// String is the word that `dunnage ps` shows.
func (s BindingState) String() string {
	switch s {
	case Armed:
		return "armed"
	case Enforced:
		return "enforced"
	}
	return "unknown"
}

// Binding ties a mount namespace to a container instance and its table.
type Binding struct {
	Instance  Instance
	Namespace NamespaceID
	Init      int // pid of the container's init in the initial pid namespace
	Table     Table
	State     BindingState
}

// Event is one reported judgement.
type Event struct {
	ID       uint64 // running number within a boot
	Time     time.Time
	Instance Instance
	Table    Table
	PID, TID int // in the initial pid namespace
	Comm     string
	Access   policy.Kind
	Op       string // what was tried: open, exec, unlink, rename, …
	Denied   bool   // false: audit, allowed but reported
	Reason   policy.Reason
	Path     string // raw bytes, as the container sees it; of the side that was judged
	Partial  bool   // the beginning of Path is missing: foreign, or over the limit
	Subject  policy.Subject
	Enforced bool // no judgement: the binding of Instance has just become enforced
}

package policy

// Subject is who acts: the paths, as the container sees them, of the programs
// that a task executes (the file, and its script if it is one), and of earlier
// programs that rules with `inherit: true` kept over exec. The zero Subject is
// the labelling exec (the entrypoint, an exec from outside): rules that list
// executables do not match it.
//
// A rule that lists executables matches if it names any of Programs, or if it
// says `inherit: true` and names any of Inherited.
type Subject struct {
	Programs  []string
	Inherited []string
}

// Reason says why a verdict is what it is.
type Reason uint8

// The reasons. Rule and Default are Decide's; the others are given by the
// kernel where a path or its name can't be judged. The numbers are part of
// the kernel ABI (bpf/abi.h) and never change their meaning.
const (
	ReasonNone    Reason = iota
	ReasonRule           // a rule matched
	ReasonDefault        // no rule matched: the policy's default
	ReasonForeign        // the path does not lead to the root of the task's mount namespace
	ReasonLimit          // too deep, too long, too many programs
	ReasonInexact        // a case-insensitive directory: the name can't be trusted
	ReasonFrozen         // the mount topology is frozen
	ReasonGain           // link or rename would give a right that the old name lacks
	ReasonSubtree        // a directory move would change the rights of what is below it
	ReasonMemfd          // executing a file without a path
	ReasonBusy           // renames or mounts did not leave the path alone long enough
	ReasonGone           // the label's container or table is gone
	ReasonTask           // driving a task that has other rights
	ReasonGuard          // the enforcement's own objects
	ReasonCache          // the cache was wrong: found only where it is checked on purpose
)

var reasonNames = []string{"none", "rule", "default", "foreign", "limit", "inexact", "frozen",
	"gain", "subtree", "memfd", "busy", "gone", "task", "guard", "cache"}

// String is the word used in events, logs and explanations.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown"
}

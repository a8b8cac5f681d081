package bpf

// The Go side of c/abi.h: the same sizes, numbers and offsets, asserted by
// abi_test.go against the types in the compiled object.

const (
	// ABIVersion names the pin folder: programs and daemons of one version
	// understand each other's maps.
	ABIVersion = 1

	cellBytes    = 64
	cellWords    = 8
	maskWords    = 8
	nameBytes    = 255
	edgeWords    = 6
	probeMax     = 8
	grantsMax    = 8
	programsMax  = 6
	inheritMax   = 16
	shortProgram = 256
	longKey      = 1 << 63

	// MaxGroups is the number of subject groups that a table can hold, "anybody" included.
	MaxGroups = 64 * maskWords
	// MaxLayers is the number of layers that a table can hold.
	MaxLayers = grantsMax
)

// Flags of struct table and struct state.
const (
	tableMounts      = 1
	tableMemfd       = 2
	tableMountsAudit = 4
	tableMemfdAudit  = 8
	tableEnforce     = 16

	stateFinal = 1
	stateEdges = 2
	stateGlob  = 4
	stateHome  = 8
)

// Offsets in struct container, a row of the map containers.
const (
	rowBytes    = 64
	rowInstance = 0
	rowTable    = 8
	rowNS       = 16
	rowState    = 24
	rowInit     = 28
	rowBirths   = 32
	rowEvents   = 48
	rowMuted    = 56
)

// Offsets in struct node.
const (
	nodeLost      = 8
	nodeAnswer    = 16
	nodeSweep     = 24
	nodeSeed      = 32
	nodeInstances = 40
	nodeTables    = 48
	nodeLoads     = 56
)

// Offsets in struct event.
const (
	eventPrograms  = 64
	eventInherited = eventPrograms + 8*programsMax
	eventPathLen   = eventInherited + 8*inheritMax
	eventPath      = eventPathLen + 8
)

// opNames are the words for enum op.
var opNames = [...]string{"none", "open", "exec", "mmap", "truncate", "create", "mkdir", "mknod", "symlink",
	"link", "unlink", "rmdir", "rename", "chmod", "chown", "setattr", "xattr",
	"receive", "mount", "ptrace", "bpf", "enforced"}

// opEnforced is the op of the event that says that an armed binding is now enforced.
const opEnforced = 21

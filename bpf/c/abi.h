/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * abi.h: what the kernel part and its Go loader share: sizes, numbers and the
 * layout of every record in a map. Fixed widths only; the Go side (abi.go,
 * layout.go) asserts the sizes. A change that an older daemon or an older
 * pinned program could misread raises ABI_VERSION, which names the pin folder.
 */
#pragma once

#define ABI_VERSION 1

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define CELL_BYTES 64	   /* unit of the table heap */
#define CELL_WORDS 8
#define MASK_WORDS 8	   /* subject groups: 8 * 64, group 0 is "anybody" */
#define WALK_MAX 320	   /* names and mount crossings of one path */
#define NAME_BYTES 255	   /* longest name the VFS knows */
#define NAME_WORDS 32
#define PATH_BYTES 4096
#define PROGRAMS_MAX 6	   /* programs of one exec: script, nested interpreters, binary */
#define INHERIT_MAX 16	   /* programs kept by `inherit: true` */
#define PROBE_MAX 8	   /* slots looked at for one literal name */
#define MEMO 8		   /* rows that a label remembers its rights on */
#define STRIPE_BITS 10	   /* 1,024 epochs of freed directories */
#define WAYS 2		   /* entries of a cache set */
#define SHORT_PROGRAM 256  /* bytes of a path in the map of ordinary programs */
#define EVENT_SHORT 512	   /* bytes of a path in an ordinary event */

/* Kinds of access: policy.Kind, in the order of a row. */
enum kind { KIND_READ, KIND_MODIFY, KIND_CREATE, KIND_DELETE, KIND_ATTR, KIND_EXEC, KIND_COUNT };
#define A_READ (1 << KIND_READ)
#define A_MODIFY (1 << KIND_MODIFY)
#define A_CREATE (1 << KIND_CREATE)
#define A_DELETE (1 << KIND_DELETE)
#define A_ATTR (1 << KIND_ATTR)
#define A_EXEC (1 << KIND_EXEC)

/* Reasons: policy.Reason. */
enum reason {
	R_NONE, R_RULE, R_DEFAULT, R_FOREIGN, R_LIMIT, R_INEXACT, R_FROZEN,
	R_GAIN, R_SUBTREE, R_MEMFD, R_BUSY, R_GONE, R_TASK, R_GUARD, R_CACHE,
};

/* Why a walk is not stored: refusalNames in cache.go. */
enum refusal { NO_PATH, NO_SYSTEM, NO_LOCK, NO_EPOCH, NO_SLOT, REFUSALS };

/* What made an entry stale: staleNames in cache.go. */
enum stale { BY_MOUNT, BY_DIRECTORY, BY_POLICY, STALES };

/* What was tried: opNames in events.go. */
enum op {
	OP_NONE, OP_OPEN, OP_EXEC, OP_MMAP, OP_TRUNCATE, OP_CREATE, OP_MKDIR, OP_MKNOD, OP_SYMLINK,
	OP_LINK, OP_UNLINK, OP_RMDIR, OP_RENAME, OP_CHMOD, OP_CHOWN, OP_SETATTR, OP_XATTR,
	OP_RECEIVE, OP_MOUNT, OP_PTRACE, OP_BPF, OP_LABEL,
};

/* A container row: what one instance is bound to. The row is the only thing
 * that a reload changes, by one store to table. */
struct container {
	u64 instance; /* 0: free; written last */
	u64 table;    /* generation << 32 | cell of the table's header */
	u64 ns;	      /* 64-bit id of the bound mount namespace */
	u32 state;    /* enum container_state */
	u32 init;     /* thread-group id of the container's init */
	u64 births;   /* labels given since the start, by fork or by exec */
	u64 tokens;   /* event budget: low 32 bits left, high 32 bits second */
	u64 events;   /* reported */
	u64 muted;    /* not reported: over the budget, or the ring was full */
};
enum container_state { STATE_NONE, STATE_ARMED, STATE_ENFORCED };

/* bindings: namespace id -> row. */
struct binding {
	u64 instance;
	u32 slot;
	u32 pad;
};

/* The header cell of a table. */
struct table {
	u64 id;	      /* equals container.table */
	u8 digest[32];
	u32 paths;    /* cell of the start state of the path automaton */
	u32 programs; /* cell of the start state of the program automaton */
	u32 inherit;  /* cell of the inherit mask */
	u32 cells;    /* length, header included */
	u32 flags;
	u32 words;    /* of each mask */
};
#define T_MOUNTS 1	 /* mounts: allow in every layer */
#define T_MEMFD 2	 /* memfdExec: allow in every layer */
#define T_MOUNTS_AUDIT 4 /* only audit layers forbid it */
#define T_MEMFD_AUDIT 8
#define T_ENFORCE 16	 /* some layer enforces: what can't be judged is denied */

/* A state of either automaton. */
struct state {
	u32 flags;
	u32 out;	/* paths: cell of the row; programs: cell of the mask */
	u32 other;	/* state for any other name */
	u32 edges;	/* first cell of the literal names' slots */
	u32 edge_mask;	/* slots - 1, a power of two */
	u32 seed;	/* of the hash */
	u32 glob;	/* cell of the byte automaton */
	u32 glob_next;	/* first cell of its targets, one u32 per class */
	u32 other_out;	/* `out` of the state that `other` is */
	u32 pad[7];
};
#define S_FINAL 1 /* every suffix has this out */
#define S_EDGES 2
#define S_GLOB 4
#define S_HOME 8 /* every edge is in the slot of its hash */

#define EDGE_WORDS 6
/* A literal name. len 0: empty slot. Names over 48 bytes go on in cell more. */
struct edge {
	u32 next;
	u16 len;
	u16 pad;
	u32 more;
	u32 out; /* of the state that `next` is */
	u64 name[EDGE_WORDS];
};

/* A byte automaton over one name; followed by 4 cells of byte classes, then
 * the transitions (u16, classes per state), then the class of each state (s16). */
struct glob {
	u32 bytes;   /* first of 4 cells: 256 u8 */
	u32 next;    /* first cell of u16 transitions */
	u32 accept;  /* first cell of u16: class + 1, 0 for none */
	u32 classes; /* byte classes */
	u32 dead;    /* state that accepts nothing any more, or ~0 */
	u32 pad[11];
};

/* A row: the cell of each kind's right; 0: everybody. */
struct row {
	u32 right[KIND_COUNT];
	u32 pad[10];
};

/* A right is a stream of words in consecutive cells: a header (number of
 * grants, then << 8 number of audit grants), the deny mask, the grants, the
 * audit deny mask, the audit grants; each of table.words words. */

/* Everything one judgement needs; lives in the task's label, because LSM
 * programs are preempted and nest. */
struct scratch {
	u64 mnt;    /* struct mount * */
	u64 dentry; /* struct dentry * */
	u64 name_at; /* kernel address of a name */
	u32 state;  /* where the path led */
	u32 steps;  /* used entries of walk */
	u32 name_len;
	u32 at;	   /* of run_bytes: where the component begins; of match_glob: state */
	u32 result; /* of a loop: enum reason */
	u32 parent; /* where the path without its last name led */
	u64 here;  /* of climb: the dentry */
	u64 above; /* of climb: the mount */
	u64 stamp; /* moves() before the walk */
	u64 locks; /* both_locks() during the walk */
	u64 name[NAME_WORDS];
	u64 walk[WALK_MAX]; /* dentries, leaf first; 0: a mount was crossed */
};

/* What a confined task carries. */
struct label {
	u64 instance; /* 0: none */
	u64 table;    /* that mask was derived for; 0: for none yet */
	u64 reloads;  /* when table was last seen to be in force; 0: never */
	u64 ns;	      /* namespace in which it was bound */
	u64 hits;     /* of the cache, not yet in a tally */
	u64 memo[MEMO]; /* row << 8 | kinds that mask is known to have there */
	u64 mask[MASK_WORDS];
	u32 slot;
	u8 pending;   /* the first exec is under way */
	u8 programs_n;
	u8 inherited_n;
	u8 next_n;
	u8 next_inherited_n;
	u8 pad[7];
	u64 programs[PROGRAMS_MAX]; /* keys of the program maps; 0: has no path */
	u64 inherited[INHERIT_MAX];
	u64 next[PROGRAMS_MAX];	    /* of the exec under way */
	u64 next_inherited[INHERIT_MAX];
	u64 next_mask[MASK_WORDS];
	u64 next_table;
	struct scratch s;
};

/*
 * The cache: where a directory leads, so that of a path in it only the last
 * name is left to run. An entry says: below the mount `mount` of namespace `ns`,
 * the directory whose inode is at `inode` is at `state` of `table`, as long as
 * nothing moved. `stamp` is the sum of three numbers that only grow: the
 * namespace's event counter, the epoch of directory renames, the stripe of
 * freed directories; equal sums mean that none of them moved.
 */
struct entry {
	u32 seq; /* moves with each write; BEING_FILLED meanwhile */
	u32 state; /* of the directory; IS_FINAL set if everything below is alike */
	u32 out; /* cell of that state's row */
	u32 event; /* low half of the event counter: which part of a stamp moved */
	u64 inode; /* its address; MOUNT_ROOT: the mount's own root, not what is in it */
	u64 mount;
	u64 ns;
	u64 table;
	u64 stamp;
	u64 pad;
};
#define BEING_FILLED (1u << 31)
#define IS_FINAL (1u << 31)
#define MOUNT_ROOT 1ULL
struct set {
	struct entry way[WAYS];
};

/* The numbers that invalidate, besides the kernel's own event counters. */
struct epochs {
	u64 renames;	      /* of directories, anywhere */
	u64 freed[1 << STRIPE_BITS]; /* inodes of directories, by address */
};

/* What the cache did for one container. */
struct tally {
	u64 hit;
	u64 fill;
	u64 refused[REFUSALS]; /* walks that were not stored, by enum refusal */
	u64 stale[STALES];     /* entries found dead when stored anew, by enum stale */
	u64 evicted;	       /* live entries of other directories written over */
	u64 disagreed;	       /* hits that a walk contradicted; counted when asked to check */
	u64 pad[4];
};

/* Interned paths of programs. */
struct program {
	u32 len;
	u32 used; /* sweep round in which it was last wanted */
	u8 path[SHORT_PROGRAM];
};
struct long_program {
	u32 len;
	u32 used;
	u8 path[PATH_BYTES];
};
#define LONG_KEY (1ULL << 63)

/* One reported judgement; in the ring it ends with the last byte of the path. */
struct event {
	u64 id;
	u64 time; /* ns, CLOCK_BOOTTIME */
	u64 instance;
	u64 table;
	u32 pid;
	u32 tid;
	u8 access; /* enum kind */
	u8 op;
	u8 reason;
	u8 denied;
	u8 partial;
	u8 programs_n;
	u8 inherited_n;
	u8 pad;
	u8 comm[16];
	u64 programs[PROGRAMS_MAX];
	u64 inherited[INHERIT_MAX];
	struct long_program path;
};

/* Node-wide numbers. The first three are the kernel part's, the others the
 * daemon's; they are here so that they outlive it. */
struct node {
	u64 event_id;
	u64 lost;      /* events that found the ring full, all containers */
	u64 answer;    /* of find_namespace */
	u64 sweep;     /* round of the program sweep */
	u64 seed;      /* of the program keys, random */
	u64 instances; /* last one given out */
	u64 tables;    /* last generation given out */
	u64 loads;     /* of the kernel part */
};

_Static_assert(sizeof(struct node) == 64, "node");
_Static_assert(sizeof(struct container) == 64, "container");
_Static_assert(sizeof(struct table) == CELL_BYTES, "table");
_Static_assert(sizeof(struct state) == CELL_BYTES, "state");
_Static_assert(sizeof(struct edge) == CELL_BYTES, "edge");
_Static_assert(sizeof(struct glob) == CELL_BYTES, "glob");
_Static_assert(__builtin_offsetof(struct event, path) == 240, "event");
_Static_assert(sizeof(struct row) == CELL_BYTES, "row");
_Static_assert(sizeof(struct entry) == 64, "entry");
_Static_assert(sizeof(struct tally) == 128, "tally");

/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * cache.h: the namespaced inode cache. It holds where directories lead, never
 * a verdict, so one entry serves every access, subject and file in a directory.
 * A stale entry can't match: everything that could change where the directory
 * leads moves a number of its stamp before, or as, it takes effect:
 *
 *   mounts of the namespace          mnt_namespace.event, by the kernel, inside
 *                                    the mount_lock section of each change
 *   a directory renamed              epochs.renames, by lsm/inode_rename, before
 *   a directory's inode freed        epochs.freed, by lsm/inode_free_security
 *   the policy, the container        the table is part of the entry
 *
 * Files need nothing: their last name is read anew, as a pair with its parent.
 */
#pragma once

#include "judge.h"
#include "mutants.h"

const volatile bool cache_on = false;	/* the kernel has all that it needs */
const volatile bool cache_check = false; /* walk on every hit, too, and compare */
const volatile u32 cache_mask = 0;	/* sets - 1, a power of two */

/* The only thing in .bss: the loader makes it as long as cache_mask says. */
#define SETS_MAX 65536
struct set sets[SETS_MAX];

/* One a container row. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct tally);
} tallies SEC(".maps");

struct epochs epochs = { .renames = 1 };

static __always_inline struct tally *tally_of(const struct label *l)
{
	u32 slot = l->slot;

	return bpf_map_lookup_elem(&tallies, &slot);
}

#define COUNT(l, what)                                                                          \
	({                                                                                      \
		struct tally *tally_ = tally_of(l);                                             \
		if (tally_)                                                                     \
			__sync_fetch_and_add(&tally_->what, 1);                                 \
	})

/* Hits are counted in the label, where it costs next to nothing, and brought
 * to the tally in bundles. What a task has left when it ends is not counted. */
#define BUNDLE 64
static __always_inline void count_hit(struct label *l)
{
	if (++l->hits & (BUNDLE - 1))
		return;
	COUNT(l, hit);
}

/* What moves with changes of the namespace at `ns`, a PEEK, or of directories
 * anywhere. */
static __always_inline u64 moves_by(u64 event)
{
	return (BROKEN(M_NO_MOUNT_EVENT) ? 0 : event) +
	       (BROKEN(M_NO_RENAME_EPOCH) ? 0 : ONCE(epochs.renames));
}

static __always_inline u64 moves(u64 ns)
{
	return moves_by(THROUGH(ns, struct mnt_namespace, event));
}

static __always_inline u64 freed(u64 ino)
{
	return BROKEN(M_NO_FREED_EPOCH) ? 0 : ONCE(epochs.freed[ino & (STRIPES - 1)]);
}

static __always_inline struct set *set_of(u64 ino, u64 mount)
{
	return &sets[(((ino ^ (mount >> 8)) * 0x9e3779b97f4a7c15ULL) >> 40) & cache_mask];
}

/* The key of a directory's inode. */
static __always_inline u64 inode_key(u64 inode, u64 ino)
{
	return BROKEN(M_KEY_BY_NUMBER) ? ino : inode;
}

struct place {
	u64 mount, ns, id, inode, ino;
};

/* Looks a directory up: its entry's state, IS_FINAL with it, or 0; *out is the
 * row there. `stamp` is moves() now. */
static __always_inline u32 look(struct label *l, const struct place *p, u64 stamp, u32 *out)
{
	struct set *set = set_of(p->ino, p->mount);
	u32 w, seq, state;

	stamp += freed(p->ino);
	for (w = 0; w < WAYS; w++) {
		struct entry *e = &set->way[w];

		seq = ONCE(e->seq);
		if (ONCE(e->inode) != p->inode || ONCE(e->mount) != p->mount || ONCE(e->ns) != p->id ||
		    ONCE(e->table) != l->table || ONCE(e->stamp) != stamp || ONCE(e->ino) != p->ino)
			continue;
		state = ONCE(e->state);
		*out = ONCE(e->out);
		if (seq & 1 || ONCE(e->seq) != seq)
			continue;
		count_hit(l);
		return state;
	}
	return 0;
}

/* Where a mount's own root leads, into s->state. Returns its row, or 0. */
__noinline u32 cached_root(struct label *l)
{
	struct place p = { .inode = MOUNT_ROOT };
	u32 state, out = 0;

	if (!l)
		return 0;
	p.mount = l->s.mnt;
	p.ns = PEEK(p.mount, struct mount, mnt_ns);
	p.id = namespace_id(p.ns);
	p.ino = GET64(GET64(l->s.dentry, struct dentry, d_inode), struct inode, i_ino);
	state = look(l, &p, moves(p.ns), &out);
	l->s.state = state & ~IS_FINAL;
	return state ? out : 0;
}

/* The sequence of a dentry's moves: odd while its name and parent change. */
static __always_inline u32 dentry_sequence(u64 dentry)
{
	return THROUGH(dentry, struct dentry, d_seq.seqcount.sequence);
}

/* Instead of a row: overlayfs at work on a layer, below a path that was judged. */
#define OF_LAYER (~0u)

/* Where the path aimed at leads, into l->s.state, if the cache knows. Returns
 * the row there, OF_LAYER, or 0. The label's table is in force. `fast`: see
 * FAST_THROUGH. */
static __always_inline u32 cached(struct label *l, u64 mnt, u64 dentry, const bool fast)
{
#define LOOK(at, type, field) (fast ? FAST_THROUGH(at, type, field) : THROUGH(at, type, field))
	struct place p = { .mount = ONCE(l->s.mnt) };
	struct state *st;
	u32 state, seq, out = 0;
	u64 dir;

	p.ns = fast ? FAST_PEEK(mnt, struct mount, mnt_ns) : PEEK(mnt, struct mount, mnt_ns);
	if (p.ns == MNT_NS_INTERNAL)
		return layer_mount(l->s.mnt) ? OF_LAYER : 0;
	p.id = NAMESPACE_ID(p.ns, LOOK);
	if (!own_namespace(p.ns, p.id, l->ns))
		return 0;
	dir = LOOK(dentry, struct dentry, d_parent);
	p.inode = LOOK(dir, struct dentry, d_inode);
	p.ino = LOOK(p.inode, struct inode, i_ino);
	p.inode = inode_key(p.inode, p.ino);
	state = dir == dentry ? 0 : look(l, &p, moves_by(LOOK(p.ns, struct mnt_namespace, event)), &out);
	if (!state) /* a mount's root has a parent elsewhere, or none */
		return dentry == PEEK(mnt, struct mount, mnt.mnt_root) ? cached_root(l) : 0;
	if (state & IS_FINAL) {
		l->s.state = state & ~IS_FINAL;
		return out;
	}
	/* The last name and its parent belong together only while the dentry does
	 * not move. */
	seq = LOOK(dentry, struct dentry, d_seq.seqcount.sequence);
	if (!BROKEN(M_NO_DSEQ) && (seq & 1 || LOOK(dentry, struct dentry, d_parent) != dir))
		return 0;
	st = (struct state *)cell_at(state);
	if (!st)
		return 0;
	state = step_by(&l->s, state, st, dentry, &out, fast);
	if (!BROKEN(M_NO_DSEQ) && (u32)LOOK(dentry, struct dentry, d_seq.seqcount.sequence) != seq)
		return 0;
	l->s.state = state;
	return out;
#undef LOOK
}

/* A level of storable(): the directory above s->walk[i]. */
static long storable_one(u32 i, struct round *r)
{
	struct scratch *s = r->s;
	u64 dir, inode, magic;

	if (i >= s->steps || i >= WALK_MAX)
		return 1;
	if (!s->walk[i])
		return 0;
	dir = GET64(s->walk[i], struct dentry, d_parent);
	magic = GET64(GET64(dir, struct dentry, d_sb), struct super_block, s_magic);
	/* A root moves nowhere. That of an overlay is flagged, whatever its layers. */
	if ((GET32(dir, struct dentry, d_flags) & DCACHE_OP_REVALIDATE &&
	     GET64(dir, struct dentry, d_parent) != dir) ||
	    magic == DEBUGFS_MAGIC || magic == TRACEFS_MAGIC) {
		s->result = NO_SYSTEM;
		return 1;
	}
	/* Who moves s->walk[i] holds this from before lsm/inode_rename until after
	 * the move. The lowest is a file's, or a directory's that is not stored. */
	inode = GET64(dir, struct dentry, d_inode);
	if (i && !BROKEN(M_NO_LOCK_CHECK) && GET64(inode, struct inode, i_rwsem.count.counter) & RWSEM_WRITER_LOCKED) {
		s->result = NO_LOCK;
		return 1;
	}
	return 0;
}

/*
 * Whether the walk in s may be stored: REFUSALS, or why not. No file system on
 * the way moves directories by itself, and nobody is moving one.
 */
__noinline int storable(struct scratch *s)
{
	struct round r = { .s = s };
	u64 inode;

	if (!s)
		return NO_SYSTEM;
	if (!s->walk[0]) {
		/* A file that is mounted on a file: others may rename the latter, and
		 * that is no directory's rename. */
		inode = GET64(s->dentry, struct dentry, d_inode);
		if ((GET32(inode, struct inode, i_mode) & S_IFMT) != S_IFDIR)
			return NO_SYSTEM;
	}
	s->result = REFUSALS;
	bpf_loop(WALK_MAX, storable_one, &r, 0);
	return s->result;
}

/* The directory that an entry for (s->mnt, s->dentry) is about, or the mount's
 * root. */
static __always_inline void placed(const struct scratch *s, struct place *p)
{
	u64 dentry = s->dentry;

	p->mount = s->mnt;
	p->ns = PEEK(p->mount, struct mount, mnt_ns);
	p->id = namespace_id(p->ns);
	if (dentry == GET64(p->mount, struct mount, mnt.mnt_root)) {
		p->ino = GET64(GET64(dentry, struct dentry, d_inode), struct inode, i_ino);
		p->inode = MOUNT_ROOT;
		return;
	}
	p->inode = GET64(GET64(dentry, struct dentry, d_parent), struct dentry, d_inode);
	p->ino = GET64(p->inode, struct inode, i_ino);
	p->inode = inode_key(p->inode, p->ino);
}

/* The way to write an entry to: that of the same directory, else a free one,
 * else the ways in turn. */
static __always_inline struct entry *way_for(struct label *l, struct set *set, const struct place *p)
{
	struct entry *e = &set->way[0], *other = &set->way[1];

	if (other->inode == p->inode && other->mount == p->mount && other->ns == p->id)
		e = other;
	if (e->inode == p->inode && e->mount == p->mount && e->ns == p->id) {
		if (e->table != l->table)
			COUNT(l, stale[BY_POLICY]);
		else if (e->event != (u32)GET64(p->ns, struct mnt_namespace, event))
			COUNT(l, stale[BY_MOUNT]);
		else
			COUNT(l, stale[BY_DIRECTORY]);
		return e;
	}
	if (!e->inode)
		return e;
	if (!other->inode || (e->seq + other->seq) & 2)
		e = other;
	if (e->inode)
		COUNT(l, evicted);
	return e;
}

/*
 * Stores the walk just made, if it may be. It was valid when rename_lock and
 * mount_lock stood at s->locks, with s->stamp read before; if they still stand
 * there, nothing has moved in between, and the directory is alive.
 */
__noinline int fill(struct label *l)
{
	struct scratch *s;
	struct place p;
	struct state *st;
	struct entry *e;
	struct set *set;
	u64 stamp;
	u32 seq, state, refusal;

	if (!l)
		return 0;
	s = &l->s;
	refusal = storable(s);
	if (refusal < REFUSALS) {
		COUNT(l, refused[refusal]);
		return 0;
	}
	placed(s, &p);
	stamp = s->stamp + freed(p.ino);
	state = p.inode == MOUNT_ROOT ? s->state : s->parent;
	st = (struct state *)cell_at(state);
	set = set_of(p.ino, p.mount);
	if (!st)
		return 0;
	if (both_locks() != s->locks || moves(p.ns) != s->stamp) {
		COUNT(l, refused[NO_EPOCH]);
		return 0;
	}
	e = way_for(l, set, &p);
	seq = e->seq;
	if (seq & 1 || __sync_val_compare_and_swap(&e->seq, seq, seq + 1) != seq) {
		COUNT(l, refused[NO_SLOT]);
		return 0;
	}
	ONCE(e->state) = state | (st->flags & S_FINAL ? IS_FINAL : 0);
	ONCE(e->out) = st->out;
	ONCE(e->event) = GET64(p.ns, struct mnt_namespace, event);
	ONCE(e->inode) = p.inode;
	ONCE(e->mount) = p.mount;
	ONCE(e->ns) = p.id;
	ONCE(e->table) = l->table;
	ONCE(e->stamp) = stamp;
	ONCE(e->ino) = p.ino;
	ONCE(e->seq) = seq + 2;
	COUNT(l, fill);
	return 0;
}

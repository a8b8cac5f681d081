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

/* A hash of an inode's address: the highest bits choose the stripe, others the set. */
static __always_inline u64 mixed(u64 inode)
{
	return inode * 0x9e3779b97f4a7c15ULL;
}

static __always_inline u64 *stripe(u64 mixed)
{
	return &epochs.freed[mixed >> (64 - STRIPE_BITS)];
}

static __always_inline u64 freed(u64 mixed)
{
	return BROKEN(M_NO_FREED_EPOCH) ? 0 : ONCE(*stripe(mixed));
}

static __always_inline struct set *set_of(u64 mixed, u64 mount)
{
	return &sets[((mixed >> 32) ^ (mount >> 8)) & cache_mask];
}

/* The key of a directory's inode: its address, as a plain number. */
static __always_inline u64 inode_key(struct scratch *s, u64 inode)
{
	return BROKEN(M_KEY_BY_NUMBER) ? GET64(inode, struct inode, i_ino) : number_of(s, (void *)inode);
}

struct found {
	u64 ns; /* id of the namespace of the mount */
	u32 state, out;
};

/*
 * Looks up the directory with an inode, or a mount's own root (MOUNT_ROOT).
 * `event` is that of the mount's namespace.
 *
 * The namespace itself need not be compared. A mount gets into another one only
 * by being attached there, which sets that one's event to more than any had
 * before, while the other parts of the sum don't fall. Only the copy of a
 * namespace has event 0, until something is attached: there cached() compares.
 */
static __always_inline bool look(const struct label *l, u64 inode, u64 mount, u64 event, struct found *f, const bool fast)
{
	u64 h = mixed(inode), stamp = moves_by(event) + freed(h);
	struct set *set = set_of(h, mount);
	u32 w;
	s32 seq;

	for (w = 0; w < WAYS; w++) {
		struct entry *e = &set->way[w];

		seq = ONCE(e->seq);
		if (ONCE(e->inode) != inode || ONCE(e->mount) != mount || ONCE(e->table) != l->table ||
		    ONCE(e->stamp) != stamp)
			continue;
		f->ns = ONCE(e->ns);
		if (fast && f->ns != l->ns)
			return false;
		f->state = ONCE(e->state);
		f->out = ONCE(e->out);
		if (seq >= 0 && (s32)ONCE(e->seq) == seq)
			return true;
	}
	return false;
}

/* Instead of a row: overlayfs at work on a layer, below a path that was judged. */
#define OF_LAYER (~0u)

/*
 * Where the path at a mount and a dentry leads, into l->s.state, if the cache
 * knows. Returns the row there, OF_LAYER, or 0. The label's table is in force.
 * `fast`: see FAST_THROUGH; less is tried then, and no state left.
 */
static __always_inline u32 cached(struct label *l, u64 mnt, u64 dentry, const bool fast)
{
#define LOOK(at, type, field) (fast ? FAST_THROUGH(at, type, field) : THROUGH(at, type, field))
	u64 mount = number_of(&l->s, (void *)mnt), ns, event, dir, inode;
	struct state *st;
	struct found f;
	u32 seq, out;

	ns = fast ? FAST_PEEK(mnt, struct mount, mnt_ns) : PEEK(mnt, struct mount, mnt_ns);
	if (ns == MNT_NS_INTERNAL)
		return layer_mount(mount) ? OF_LAYER : 0;
	event = LOOK(ns, struct mnt_namespace, event);
	if (fast && !event)
		return 0;
	dir = LOOK(dentry, struct dentry, d_parent);
	inode = inode_key(&l->s, LOOK(dir, struct dentry, d_inode));
	/* A mount's root has a parent elsewhere, or is its own, and no name to look
	 * at. Where all below is alike so is it. */
	if (!look(l, inode, mount, event, &f, fast) || (!fast && dir == dentry && !(f.state & IS_FINAL))) {
		if (fast || dentry != PEEK(mnt, struct mount, mnt.mnt_root) || !look(l, MOUNT_ROOT, mount, event, &f, fast))
			return 0;
		f.state |= IS_FINAL;
	}
	if (!fast && ((!event && f.ns != namespace_id(ns)) || (f.ns != l->ns && ns != current_namespace())))
		return 0;
	count_hit(l);
	if (!(f.state & IS_FINAL)) {
		/* The last name and its parent belong together only while the dentry does
		 * not move. */
		seq = LOOK(dentry, struct dentry, d_seq.seqcount.sequence);
		if (!BROKEN(M_NO_DSEQ) && (seq & 1 || LOOK(dentry, struct dentry, d_parent) != dir))
			return 0;
		if (fast && dir == dentry)
			return 0;
		st = (struct state *)cell_at(f.state);
		if (!st)
			return 0;
		f.state = step_by(&l->s, f.state, st, dentry, &out, fast);
		f.out = out;
		if (!BROKEN(M_NO_DSEQ) && (u32)LOOK(dentry, struct dentry, d_seq.seqcount.sequence) != seq)
			return 0;
	}
	if (!fast)
		l->s.state = f.state & ~IS_FINAL;
	return f.out;
#undef LOOK
}

/* The sequence of a dentry's moves: odd while its name and parent change. */
static __always_inline u32 dentry_sequence(u64 dentry)
{
	return THROUGH(dentry, struct dentry, d_seq.seqcount.sequence);
}

/* Whether the level of a walk where `dentry` lies in its directory speaks against
 * storing it: 0, or REFUSALS + why. `lowest`: that of a file, or of a directory
 * that is not stored. `same`: the level below had the same file system. */
static __always_inline u32 level_objects(u64 dentry, bool lowest, bool same)
{
	u64 dir, inode, sb, magic;

	dir = THROUGH(dentry, struct dentry, d_parent);
	/* A root moves nowhere. That of an overlay is flagged, whatever its layers. */
	if ((u32)THROUGH(dir, struct dentry, d_flags) & DCACHE_OP_REVALIDATE && THROUGH(dir, struct dentry, d_parent) != dir)
		return REFUSALS + NO_SYSTEM;
	if (!same) {
		sb = THROUGH(dir, struct dentry, d_sb);
		magic = THROUGH(sb, struct super_block, s_magic);
		if (magic == DEBUGFS_MAGIC || magic == TRACEFS_MAGIC)
			return REFUSALS + NO_SYSTEM;
	}
	/* Who moves the dentry holds this from before lsm/inode_rename until after
	 * the move. */
	inode = THROUGH(dir, struct dentry, d_inode);
	if (!lowest && !BROKEN(M_NO_LOCK_CHECK) && THROUGH(inode, struct inode, i_rwsem.count.counter) & RWSEM_WRITER_LOCKED)
		return REFUSALS + NO_LOCK;
	return 0;
}

/* A level of storable() beyond the first. */
static long storable_one(u32 i, struct round *r)
{
	struct scratch *s = r->s;
	u32 at = QUICK + i;

	if (at >= s->steps || at >= WALK_MAX)
		return 1;
	if (s->walk[at])
		s->result = level_objects(TYPED(struct dentry, s->walk[at]), false, false);
	if (s->result)
		return 1;
	return 0;
}

/*
 * Whether the walk in s may be stored: REFUSALS, or why not. No file system on
 * the way moves directories by itself, and nobody is moving one.
 */
__noinline int storable(struct scratch *s)
{
	struct round r = { .s = s };
	bool same = false;
	u32 i, steps;
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
	s->result = 0;
	steps = s->steps;
	for (i = 0; i < QUICK && i < steps; i++) {
		if (s->walk[i])
			s->result = level_objects(TYPED(struct dentry, s->walk[i]), i == 0, same);
		if (s->result)
			return s->result - REFUSALS;
		same = s->walk[i];
	}
	if (steps > QUICK)
		bpf_loop(WALK_MAX, storable_one, &r, 0);
	return s->result ? s->result - REFUSALS : REFUSALS;
}

struct place {
	u64 inode, mount, ns;
};

/* What an entry for (s->mnt, s->dentry) is about: its directory, or the mount's
 * root. */
static __always_inline void placed(struct scratch *s, struct place *p)
{
	u64 dentry = s->dentry;

	p->mount = s->mnt;
	p->ns = PEEK(p->mount, struct mount, mnt_ns);
	if (dentry == GET64(p->mount, struct mount, mnt.mnt_root))
		p->inode = MOUNT_ROOT;
	else
		p->inode = inode_key(s, GET64(GET64(dentry, struct dentry, d_parent), struct dentry, d_inode));
}

/* The way to write an entry to: that of the same directory, else a free one,
 * else the ways in turn. */
static __always_inline struct entry *way_for(struct label *l, struct set *set, const struct place *p)
{
	struct entry *e = &set->way[0], *other = &set->way[1];

	if (other->inode == p->inode && other->mount == p->mount)
		e = other;
	if (e->inode == p->inode && e->mount == p->mount) {
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
	if (!other->inode || (e->seq + other->seq) & 1)
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
	u64 event, h, stamp;
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
	h = mixed(p.inode);
	stamp = s->stamp + freed(h);
	state = p.inode == MOUNT_ROOT ? s->state : s->parent;
	st = (struct state *)cell_at(state);
	if (!st)
		return 0;
	event = THROUGH(p.ns, struct mnt_namespace, event);
	if (both_locks() != s->locks || moves_by(event) != s->stamp) {
		COUNT(l, refused[NO_EPOCH]);
		return 0;
	}
	e = way_for(l, set_of(h, p.mount), &p);
	seq = e->seq;
	if (seq & BEING_FILLED || __sync_val_compare_and_swap(&e->seq, seq, seq | BEING_FILLED) != seq) {
		COUNT(l, refused[NO_SLOT]);
		return 0;
	}
	ONCE(e->state) = state | (st->flags & S_FINAL ? IS_FINAL : 0);
	ONCE(e->out) = st->out;
	ONCE(e->event) = event;
	ONCE(e->inode) = p.inode;
	ONCE(e->mount) = p.mount;
	ONCE(e->ns) = namespace_id(p.ns);
	ONCE(e->table) = l->table;
	ONCE(e->stamp) = stamp;
	ONCE(e->seq) = (seq + 1) & ~BEING_FILLED;
	COUNT(l, fill);
	return 0;
}

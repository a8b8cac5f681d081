/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * walk.h: from a (mount, dentry) to a state of the path automaton: climb over
 * mounts to the root of the mount namespace collecting dentries, then run the
 * automaton downwards until a final state. No path string is built. No lock is
 * taken: rename_lock and mount_lock are compared before and after, and the
 * walk is repeated when either moved.
 */
#pragma once

#include "step.h"

/* Both are seqlocks: their first member is the sequence, odd while written. */
extern void rename_lock __ksym;
extern void mount_lock __ksym;

/* Says which path is meant. */
static __always_inline void aim(struct scratch *s, const struct vfsmount *mnt, const struct dentry *dentry)
{
	ONCE(s->mnt) = mount_of((u64)mnt);
	ONCE(s->dentry) = (u64)dentry;
}

#define WALK_TRIES 32
#define QUICK 8 /* levels that are walked without a call each */
#define BEING_WRITTEN 0x100000001ULL /* of both_locks() */

static __always_inline u64 both_locks(void)
{
	return (u64)load32((u64)&mount_lock) << 32 | load32((u64)&rename_lock);
}

/*
 * Mounts that are in no namespace because the kernel keeps them to itself
 * (mnt_ns is MNT_NS_INTERNAL) are of two kinds. Those of file systems of its own,
 * with SB_KERNMOUNT, hold what has no path: pipes, sockets, memfds. The others
 * are overlayfs' private copies of the mounts that its layers are on: what is
 * opened there is opened by the kernel, below a file that was judged by its own
 * path. No task can name anything there. (The kernel marks such files, too, but
 * FMODE_BACKING is bit 25 in some releases and 24 in others, as in 6.12.)
 */
static __always_inline bool kernel_mount(u64 mnt)
{
	return GET64(mnt, struct mount, mnt_ns) == MNT_NS_INTERNAL;
}

static __always_inline bool layer_mount(u64 mnt)
{
	u64 sb = GET64(mnt, struct mount, mnt.mnt_sb);

	return !(GET64(sb, struct super_block, s_flags) & SB_KERNMOUNT);
}

/* Whether a mount in namespace `ns` (its address) is the task's own: in the
 * namespace in which its label was bound, or in the one where it is now. */
static __always_inline bool own_namespace(u64 ns, u64 id, u64 label_ns)
{
	return id == label_ns || (ns && ns == current_namespace());
}

/* Climbs on from s->here, s->above. Deep paths only: the first levels are
 * climbed without a call a level. */
static long climb_one(u32 i, struct round *r)
{
	struct scratch *s = r->s;
	u64 dentry = s->here, mnt = s->above, up;
	u32 at = QUICK + i;

	s->steps = at;
	if (at >= WALK_MAX)
		return 1;
	if (dentry == GET64(mnt, struct mount, mnt.mnt_root)) {
		up = GET64(mnt, struct mount, mnt_parent);
		if (up == mnt) {
			s->result = R_NONE;
			return 1;
		}
		s->walk[at] = 0;
		s->here = GET64(mnt, struct mount, mnt_mountpoint);
		s->above = up;
		return 0;
	}
	up = GET64(dentry, struct dentry, d_parent);
	if (up == dentry || !up) {
		s->result = R_FOREIGN;
		return 1;
	}
	s->walk[at] = dentry;
	s->here = up;
	return 0;
}

/* Fills s->walk from (s->mnt, s->dentry) upwards; s->steps says how far it came. */
__noinline int climb(struct scratch *s)
{
	struct round r = { .s = s };
	u64 dentry, mnt, root, up;
	u32 i;

	if (!s)
		return R_GONE;
	dentry = TYPED(struct dentry, s->dentry);
	mnt = TYPED(struct mount, s->mnt);
	root = THROUGH(mnt, struct mount, mnt.mnt_root);
	for (i = 0; i < QUICK; i++) {
		if (dentry == root) {
			s->steps = i;
			up = THROUGH(mnt, struct mount, mnt_parent);
			if (up == mnt)
				return R_NONE;
			s->walk[i] = 0;
			dentry = THROUGH(mnt, struct mount, mnt_mountpoint);
			mnt = up;
			root = THROUGH(mnt, struct mount, mnt.mnt_root);
			continue;
		}
		up = THROUGH(dentry, struct dentry, d_parent);
		if (up == dentry || !up) { /* disconnected: opened by handle, or a read went wrong */
			s->steps = i;
			return R_FOREIGN;
		}
		s->walk[i] = dentry;
		dentry = up;
	}
	s->here = dentry;
	s->above = mnt;
	s->result = R_LIMIT;
	bpf_loop(WALK_MAX + 1 - QUICK, climb_one, &r, 0);
	return s->result;
}

/* Whether names looked up in this directory may be spelt in another way than
 * their dentries are. */
__noinline int inexact_names(u64 dir)
{
	u64 magic, inode;

	if (!(GET32(dir, struct dentry, d_flags) & DCACHE_OP_COMPARE))
		return false;
	inode = GET64(dir, struct dentry, d_inode);
	magic = GET64(GET64(inode, struct inode, i_sb), struct super_block, s_magic);
	if (magic == PROC_SUPER_MAGIC)
		return false;
	if (magic == EXT4_SUPER_MAGIC || magic == F2FS_SUPER_MAGIC || magic == TMPFS_MAGIC)
		return GET32(inode, struct inode, i_flags) & S_CASEFOLD;
	return true;
}

#define ALL_DOWN (~0u)

/* One name down: from `state` by s->walk[at]. Returns where that leads; 0 with
 * s->result if it can't be said; ALL_DOWN if there is nothing to do. */
static __always_inline u32 down(struct scratch *s, u32 at, u32 state)
{
	struct state *st;
	u64 dentry;
	u32 out;

	asm volatile("" : "+r"(at)); /* the bound is on what indexes */
	if (at >= WALK_MAX)
		return ALL_DOWN;
	dentry = s->walk[at];
	if (!dentry)
		return state;
	st = (struct state *)cell_at(state);
	if (!st) {
		s->result = R_GONE;
		return 0;
	}
	if (st->flags & S_FINAL)
		return ALL_DOWN;
	dentry = TYPED(struct dentry, dentry);
	if (THROUGH(THROUGH(dentry, struct dentry, d_parent), struct dentry, d_flags) & DCACHE_OP_COMPARE &&
	    inexact_names(GET64(s->walk[at], struct dentry, d_parent))) {
		s->result = R_INEXACT;
		return 0;
	}
	return step_by(s, state, st, dentry, &out, false);
}

static long descend_one(u32 i, struct round *r)
{
	struct scratch *s = r->s;
	u32 at = s->steps - 1 - QUICK - i, state = down(s, at, s->state);

	if (state == ALL_DOWN) {
		if (at < WALK_MAX) /* a final state: what is below it leads there, too */
			s->parent = s->state;
		return 1;
	}
	s->parent = s->state;
	s->state = state;
	return !state;
}

/* Runs the automaton from `start` over s->walk, from the root down until a
 * final state, into s->state; s->parent is where the path without its last name
 * leads. */
__noinline int descend(struct scratch *s, u32 start)
{
	u32 i, at, next, state = start, parent = start;
	struct round r = { .s = s };

	if (!s)
		return R_GONE;
	s->result = R_NONE;
	at = s->steps;
	for (i = 0; i < QUICK; i++) {
		at--;
		next = down(s, at, state);
		if (next == ALL_DOWN) {
			/* Below a final state all is alike. */
			s->parent = at < WALK_MAX ? state : parent;
			s->state = state;
			return R_NONE;
		}
		parent = state;
		state = next;
		if (!state)
			return s->result == R_NONE ? R_GONE : s->result;
	}
	s->parent = parent;
	s->state = state;
	bpf_loop(WALK_MAX - QUICK, descend_one, &r, 0);
	return s->state || s->result != R_NONE ? s->result : R_GONE;
}

/* One try of walk(): R_BUSY if a rename or a mount came in between. */
__noinline int walk_once(struct scratch *s, u32 start, u64 label_ns)
{
	u64 locks = both_locks(), ns;
	int r;

	if (!s)
		return R_GONE;
	if (locks & BEING_WRITTEN)
		return R_BUSY;
	s->locks = locks;
	s->steps = 0;
	ns = PEEK(s->mnt, struct mount, mnt_ns);
	if (!own_namespace(ns, namespace_id(ns), label_ns))
		return R_FOREIGN;
	r = climb(s);
	if (r == R_NONE)
		r = descend(s, start);
	return both_locks() == locks ? r : R_BUSY;
}

/* The state of (s->mnt, s->dentry), into s->state. Returns R_NONE, or the
 * reason why there is none. */
static __always_inline int walk(struct scratch *s, u32 start, u64 label_ns)
{
	int r = R_BUSY;
	u32 i;

	for (i = 0; i < WALK_TRIES && r == R_BUSY; i++)
		r = walk_once(s, start, label_ns);
	return r;
}

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
	s->mnt = mount_of(number_of(s, mnt));
	s->dentry = number_of(s, dentry);
}

#define WALK_TRIES 32

static __always_inline u64 both_locks(void)
{
	return (u64)load32((u64)&mount_lock) << 32 | load32((u64)&rename_lock);
}

/* Whether the mount is the task's own: in the namespace where it is now, or in
 * the one in which its label was bound. */
static __always_inline bool own_mount(u64 mnt, u64 label_ns)
{
	u64 ns = GET64(mnt, struct mount, mnt_ns);

	if (ns == 0 || ns == MNT_NS_INTERNAL)
		return false;
	return ns == current_namespace() || namespace_id(ns) == label_ns;
}

/* Fills s->walk from (s->mnt, s->dentry) upwards; s->steps says how far it came. */
__noinline int climb(struct scratch *s)
{
	u64 mnt, dentry;
	u32 i;

	if (!s)
		return R_GONE;
	mnt = s->mnt;
	dentry = s->dentry;
	for (i = 0; i < WALK_MAX; i++) {
		u64 up;

		s->steps = i;
		if (dentry == GET64(mnt, struct mount, mnt.mnt_root)) {
			up = GET64(mnt, struct mount, mnt_parent);
			if (up == mnt)
				return R_NONE;
			s->walk[i] = 0;
			dentry = GET64(mnt, struct mount, mnt_mountpoint);
			mnt = up;
			continue;
		}
		up = GET64(dentry, struct dentry, d_parent);
		if (up == dentry || !up) /* disconnected: opened by handle, or a read went wrong */
			return R_FOREIGN;
		s->walk[i] = dentry;
		dentry = up;
	}
	s->steps = WALK_MAX;
	return R_LIMIT;
}

/* Whether names looked up in this directory may be spelt in another way than
 * their dentries are. */
static __always_inline bool inexact_names(u64 dir)
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

/* Runs the automaton from `start` over s->walk, from the root down. */
__noinline int descend(struct scratch *s, u32 start)
{
	u32 state = start;
	u32 i;

	if (!s)
		return R_GONE;
	for (i = 0; i < WALK_MAX; i++) {
		struct state *st = (struct state *)cell_at(state);
		u32 at = s->steps - 1 - i;
		u64 dentry;

		if (!st || !state)
			return R_GONE;
		if (st->flags & S_FINAL || at >= WALK_MAX)
			break;
		dentry = s->walk[at];
		if (!dentry)
			continue;
		if (inexact_names(GET64(dentry, struct dentry, d_parent)))
			return R_INEXACT;
		s->name_len = GET32(dentry, struct dentry, d_name.len);
		s->name_at = GET64(dentry, struct dentry, d_name.name);
		state = step(s, state);
	}
	s->state = state;
	return R_NONE;
}

/* The state of (s->mnt, s->dentry), into s->state. Returns R_NONE, or the
 * reason why there is none. */
static __always_inline int walk(struct scratch *s, u32 start, u64 label_ns)
{
	u32 i;
	int r = R_BUSY;

	for (i = 0; i < WALK_TRIES; i++) {
		u64 before = both_locks();
		int found;

		if (before & 0x100000001ULL)
			continue;
		if (!own_mount(s->mnt, label_ns)) {
			s->steps = 0;
			return R_FOREIGN;
		}
		found = climb(s);
		if (found == R_NONE)
			found = descend(s, start);
		if (both_locks() == before) {
			r = found;
			break;
		}
	}
	return r;
}

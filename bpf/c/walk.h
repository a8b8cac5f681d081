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

/* Whether the mount is the task's own: in the namespace where it is now, or in
 * the one in which its label was bound. */
static __always_inline bool own_mount(u64 mnt, u64 label_ns)
{
	u64 ns = GET64(mnt, struct mount, mnt_ns);

	if (ns == 0 || ns == MNT_NS_INTERNAL)
		return false;
	return ns == current_namespace() || namespace_id(ns) == label_ns;
}

static long climb_one(u32 i, struct round *r)
{
	struct scratch *s = r->s;
	u64 dentry = s->here, mnt = s->above, up;

	s->steps = i;
	if (i >= WALK_MAX)
		return 1;
	if (dentry == GET64(mnt, struct mount, mnt.mnt_root)) {
		up = GET64(mnt, struct mount, mnt_parent);
		if (up == mnt) {
			s->result = R_NONE;
			return 1;
		}
		s->walk[i] = 0;
		s->here = GET64(mnt, struct mount, mnt_mountpoint);
		s->above = up;
		return 0;
	}
	up = GET64(dentry, struct dentry, d_parent);
	if (up == dentry || !up) { /* disconnected: opened by handle, or a read went wrong */
		s->result = R_FOREIGN;
		return 1;
	}
	s->walk[i] = dentry;
	s->here = up;
	return 0;
}

/* Fills s->walk from (s->mnt, s->dentry) upwards; s->steps says how far it came. */
__noinline int climb(struct scratch *s)
{
	struct round r = { .s = s };

	if (!s)
		return R_GONE;
	s->here = s->dentry;
	s->above = s->mnt;
	s->result = R_LIMIT;
	bpf_loop(WALK_MAX + 1, climb_one, &r, 0);
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

static long descend_one(u32 i, struct round *r)
{
	struct scratch *s = r->s;
	u32 at = s->steps - 1 - i;
	struct state *st;
	u64 dentry;

	if (at >= WALK_MAX)
		return 1;
	dentry = s->walk[at];
	if (!dentry)
		return 0;
	st = (struct state *)cell_at(s->state);
	if (!st || st->flags & S_FINAL)
		return 1;
	if (inexact_names(GET64(dentry, struct dentry, d_parent))) {
		s->result = R_INEXACT;
		return 1;
	}
	s->name_len = GET32(dentry, struct dentry, d_name.len);
	s->name_at = GET64(dentry, struct dentry, d_name.name);
	s->state = step(s, s->state);
	return 0;
}

/* Runs the automaton from `start` over s->walk, from the root down until a
 * final state, into s->state. */
__noinline int descend(struct scratch *s, u32 start)
{
	struct round r = { .s = s };

	if (!s)
		return R_GONE;
	s->state = start;
	s->result = R_NONE;
	bpf_loop(WALK_MAX, descend_one, &r, 0);
	return s->state ? s->result : R_GONE;
}

/* One try of walk(): R_BUSY if a rename or a mount came in between. */
__noinline int walk_once(struct scratch *s, u32 start, u64 label_ns)
{
	u64 before = both_locks();
	int r;

	if (!s)
		return R_GONE;
	if (before & BEING_WRITTEN)
		return R_BUSY;
	s->steps = 0;
	if (!own_mount(s->mnt, label_ns))
		return R_FOREIGN;
	r = climb(s);
	if (r == R_NONE)
		r = descend(s, start);
	return both_locks() == before ? r : R_BUSY;
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

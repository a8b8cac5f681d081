/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * hooks_attr.h: extended attributes, ACLs and times. Their hooks carry no
 * mount, so the path can't be told from the dentry when several mounts of the
 * namespace show it. Then each of those paths is judged, and all must allow it.
 * For a dentry that one mount shows, which is nearly all, that is exact.
 */
#pragma once

#include "decide.h"

#define SHOWN_MAX 8	   /* paths of one dentry that are judged; more: limit */
#define INSTANCES_MAX 16384 /* mounts of one file system that are looked at */

/* Where a file system's list of its mounts begins and goes on: a place is the
 * address of a mount's list node up to 6.16, of the mount itself after. */
static __always_inline bool chained(void)
{
	return bpf_core_field_exists(struct mount, mnt_next_for_sb);
}

static __always_inline u64 first_place(u64 sb)
{
	return chained() ? GET64(sb, struct super_block___chain, s_mounts) : GET64(sb, struct super_block, s_mounts.next);
}

static __always_inline u64 next_place(u64 place)
{
	return chained() ? GET64(place, struct mount, mnt_next_for_sb) : load64(place);
}

static __always_inline u64 mount_at(u64 place)
{
	return chained() ? place : place - OFFSET(struct mount, mnt_instance);
}

struct search {
	struct label *l;
	u64 end;
};

/* Looks at one mount: is it the task's own, and does it show l->s.dentry? */
static long look_at_mount(u32 i, struct search *r)
{
	struct scratch *s = &r->l->s;
	u64 place = s->name[1], mnt, ns;

	if (!place || place == r->end) {
		s->name[1] = 0;
		return 1;
	}
	mnt = mount_at(place);
	ns = PEEK(mnt, struct mount, mnt_ns);
	s->mnt = mnt;
	if (ns == MNT_NS_INTERNAL)
		s->name[2] = 1;
	else if (own_namespace(ns, namespace_id(ns), r->l->ns) && climb(s) == R_NONE)
		return 1;
	s->name[1] = next_place(place);
	return 0;
}

/* The next place, from `place` on, whose mount shows l->s.dentry to the task,
 * with l->s.mnt set to that mount; 0: none. ~0: too many to look at. In
 * l->s.name[2] whether the kernel has a mount of this file system to itself. */
__noinline u64 find_shown(struct label *l, u64 place, u64 end)
{
	struct search r = { .l = l, .end = end };

	if (!l)
		return 0;
	l->s.name[1] = place;
	if (bpf_loop(INSTANCES_MAX, look_at_mount, &r, 0) >= INSTANCES_MAX)
		return ~0ULL;
	return l->s.name[1];
}

/* Judges every path of l->s.dentry. 1: denied. */
static __always_inline int on_every_path(struct label *l, u32 op)
{
	struct scratch *s = &l->s;
	u64 sb = GET64(s->dentry, struct dentry, d_sb);
	u64 end = chained() ? 0 : sb + OFFSET(struct super_block, s_mounts);
	u64 place = first_place(sb), locks = both_locks();
	u32 i, internal = 0;
	struct table *t;

	for (i = 0; i < SHOWN_MAX; i++) {
		s->name[2] = 0;
		place = find_shown(l, place, end);
		internal |= (u32)s->name[2];
		if (!place || place == ~0ULL)
			break;
		if (decide(l, op, A_ATTR, 0))
			return 1;
		place = next_place(place);
	}
	/* Of overlayfs' work on its layers the path was judged already; pipes and
	 * sockets have none. */
	if (!place && (i || internal) && !((both_locks() ^ locks) >> 32))
		return 0;
	t = table_of(l);
	s->steps = 0;
	if (!t) {
		report(l, how(R_GONE, KIND_ATTR, op, 1));
		return 1;
	}
	return refuse(l, t, op, A_ATTR, place ? R_LIMIT : i || internal ? R_BUSY : R_FOREIGN) != 0;
}

static __always_inline int on_attributes(u32 op, const struct dentry *dentry)
{
	struct label *l = own_label();

	if (!l)
		return 0;
	ONCE(l->s.dentry) = (u64)dentry;
	return ANSWER(on_every_path(l, op), EACCES);
}

SEC("lsm/inode_setxattr")
int BPF_PROG(setxattr, void *idmap, struct dentry *dentry)
{
	return on_attributes(OP_XATTR, dentry);
}

SEC("lsm/inode_removexattr")
int BPF_PROG(removexattr, void *idmap, struct dentry *dentry)
{
	return on_attributes(OP_XATTR, dentry);
}

/* From 6.2; before, ACLs come as extended attributes. */
SEC("lsm/inode_set_acl")
int BPF_PROG(set_acl, void *idmap, struct dentry *dentry)
{
	return on_attributes(OP_XATTR, dentry);
}

SEC("lsm/inode_remove_acl")
int BPF_PROG(remove_acl, void *idmap, struct dentry *dentry)
{
	return on_attributes(OP_XATTR, dentry);
}

/* Times only: mode, owner and size have path hooks. Its arguments were
 * (dentry, attr), and are (idmap, dentry, attr) from 6.9. */
static __always_inline int on_times(const struct dentry *dentry, const struct iattr *attr)
{
	if (attr->ia_valid & ATTR_OTHERS || !(attr->ia_valid & ATTR_TIMES))
		return 0;
	return on_attributes(OP_SETATTR, dentry);
}

SEC("lsm/inode_setattr")
int BPF_PROG(setattr_early, struct dentry *dentry, struct iattr *attr)
{
	return on_times(dentry, attr);
}

SEC("lsm/inode_setattr")
int BPF_PROG(setattr, void *idmap, struct dentry *dentry, struct iattr *attr)
{
	return on_times(dentry, attr);
}

/* From 6.17, for file_setattr(2) and the ioctls below. */
SEC("lsm/inode_file_setattr")
int BPF_PROG(file_setattr, struct dentry *dentry)
{
	return on_attributes(OP_SETATTR, dentry);
}

#define IOC_NR(cmd) ((cmd) & 0xff)
#define IOC_TYPE(cmd) (((cmd) >> 8) & 0xff)
#define IOC(type, nr) ((type) << 8 | (nr))

/* Requests that change attributes, of a descriptor opened for anything. */
static __always_inline bool sets_attributes(u32 cmd)
{
	u32 what = cmd & 0xffff;

	return what == IOC('f', 2)	/* FS_IOC_SETFLAGS */
	       || what == IOC('X', 32)	/* FS_IOC_FSSETXATTR */
	       || what == IOC('f', 133); /* FS_IOC_ENABLE_VERITY: unchangeable from then on */
}

/* Requests by which btrfs gives files new paths, takes paths away, or reads
 * what lies at any: include/uapi/linux/btrfs.h. */
static __always_inline bool moves_subvolumes(u32 cmd)
{
	switch (cmd & 0xffff) {
	case IOC(0x94, 1):  /* SNAP_CREATE */
	case IOC(0x94, 14): /* SUBVOL_CREATE */
	case IOC(0x94, 15): /* SNAP_DESTROY */
	case IOC(0x94, 17): /* TREE_SEARCH */
	case IOC(0x94, 23): /* SNAP_CREATE_V2 */
	case IOC(0x94, 24): /* SUBVOL_CREATE_V2 */
	case IOC(0x94, 38): /* SEND */
	case IOC(0x94, 63): /* SNAP_DESTROY_V2 */
		return true;
	}
	return false;
}

static __always_inline int on_ioctl(struct file *file, u32 cmd)
{
	struct label *l;
	struct table *t;
	u32 mode;
	int denied;

	if (!sets_attributes(cmd) && !moves_subvolumes(cmd))
		return 0;
	l = own_label();
	if (!l)
		return 0;
	mode = file->f_inode->i_mode & S_IFMT;
	if (mode != S_IFREG && mode != S_IFDIR)
		return 0; /* a device's own requests */
	if (sets_attributes(cmd))
		return on_file(l, OP_SETATTR, A_ATTR, file);
	if (file->f_inode->i_sb->s_magic != BTRFS_SUPER_MAGIC)
		return 0;
	t = table_of(l);
	if (t && t->flags & T_MOUNTS)
		return 0;
	aim(&l->s, file->f_path.mnt, file->f_path.dentry);
	climb(&l->s);
	denied = !t || !(t->flags & T_MOUNTS_AUDIT);
	report(l, how(t ? R_FROZEN : R_GONE, KIND_MODIFY, OP_MOUNT, denied));
	return ANSWER(denied, EPERM);
}

SEC("lsm/file_ioctl")
int BPF_PROG(file_ioctl, struct file *file, unsigned int cmd)
{
	return on_ioctl(file, cmd);
}

/* From 6.8; before, 32-bit requests come to file_ioctl. */
SEC("lsm/file_ioctl_compat")
int BPF_PROG(ioctl_compat, struct file *file, unsigned int cmd)
{
	return on_ioctl(file, cmd);
}

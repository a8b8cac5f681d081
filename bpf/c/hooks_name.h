/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * hooks_name.h: names and attributes: create, remove, link, rename, chmod,
 * chown. The path_* hooks come before any effect and only once on overlayfs.
 */
#pragma once

#include "decide.h"

#define ON_NEW_NAME(hook, number, access, ...)                                                  \
	SEC("lsm/" #hook)                                                                       \
	int BPF_PROG(hook, struct path *dir, struct dentry *dentry, ##__VA_ARGS__, int ret)     \
	{                                                                                       \
		struct label *l = own_label();                                                  \
                                                                                                \
		if (ret || !l)                                                                  \
			return ret;                                                             \
		return on_path(l, number, access, dir->mnt, dentry);                            \
	}

ON_NEW_NAME(path_mkdir, OP_MKDIR, A_CREATE, umode_t mode)
ON_NEW_NAME(path_mknod, OP_MKNOD, A_CREATE, umode_t mode, unsigned int dev)
ON_NEW_NAME(path_symlink, OP_SYMLINK, A_CREATE, const char *target)
/* What is pinned in a bpf file system, the enforcement's own objects among it, is
 * not a confined task's to take away, whatever path it has there. */
static __always_inline int on_pinned(struct label *l, u32 op, const struct dentry *dentry)
{
	struct table *t;
	bool denied;

	if (dentry->d_sb->s_magic != BPF_FS_MAGIC)
		return 0;
	t = table_of(l);
	denied = !t || t->flags & T_ENFORCE;
	l->s.steps = 0;
	report(l, how(R_GUARD, KIND_DELETE, op, denied));
	return ANSWER(denied, EPERM);
}

#define ON_OLD_NAME(hook, number)                                                               \
	SEC("lsm/" #hook)                                                                       \
	int BPF_PROG(hook, struct path *dir, struct dentry *dentry, int ret)                    \
	{                                                                                       \
		struct label *l = own_label();                                                  \
		int r;                                                                          \
                                                                                                \
		if (ret || !l)                                                                  \
			return ret;                                                             \
		r = on_pinned(l, number, dentry);                                               \
		return r ? r : on_path(l, number, A_DELETE, dir->mnt, dentry);                  \
	}

ON_OLD_NAME(path_unlink, OP_UNLINK)
ON_OLD_NAME(path_rmdir, OP_RMDIR)

/* link(2) does not cross mounts: the old name is on the new one's mount. */
SEC("lsm/path_link")
int BPF_PROG(path_link, struct dentry *old, struct path *dir, struct dentry *new, int ret)
{
	struct label *l = own_label();
	u32 from;
	int r;

	if (ret || !l)
		return ret;
	r = on_path(l, OP_LINK, 0, dir->mnt, old);
	if (r)
		return r;
	from = l->s.state;
	r = on_path(l, OP_LINK, A_CREATE, dir->mnt, new);
	if (r)
		return r;
	return may_move(l, from, false, OP_LINK);
}

/* One direction of a rename: removes the old name, makes the new one. */
static __always_inline int move_name(struct label *l, struct path *old_dir, struct dentry *old,
				     struct path *new_dir, struct dentry *new, u32 old_access)
{
	u32 from;
	int r;

	r = on_path(l, OP_RENAME, old_access, old_dir->mnt, old);
	if (r)
		return r;
	from = l->s.state;
	r = on_path(l, OP_RENAME, A_CREATE, new_dir->mnt, new);
	if (r)
		return r;
	return may_move(l, from, is_directory(old), OP_RENAME);
}

SEC("lsm/path_rename")
int BPF_PROG(path_rename, struct path *old_dir, struct dentry *old, struct path *new_dir, struct dentry *new,
	     unsigned int flags, int ret)
{
	struct label *l = own_label();
	int r;

	if (ret || !l)
		return ret;
	r = on_pinned(l, OP_RENAME, old);
	if (r)
		return r;
	/* RENAME_WHITEOUT leaves a device under the old name. */
	r = move_name(l, old_dir, old, new_dir, new, flags & RENAME_WHITEOUT ? A_DELETE | A_CREATE : A_DELETE);
	if (r || !(flags & RENAME_EXCHANGE))
		return r;
	return move_name(l, new_dir, new, old_dir, old, A_DELETE);
}

SEC("lsm/path_chmod")
int BPF_PROG(path_chmod, struct path *path, umode_t mode, int ret)
{
	struct label *l = own_label();

	if (ret || !l)
		return ret;
	return on_path(l, OP_CHMOD, A_ATTR, path->mnt, path->dentry);
}

SEC("lsm/path_chown")
int BPF_PROG(path_chown, struct path *path, unsigned long uid, unsigned long gid, int ret)
{
	struct label *l = own_label();

	if (ret || !l)
		return ret;
	return on_path(l, OP_CHOWN, A_ATTR, path->mnt, path->dentry);
}

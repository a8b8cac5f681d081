/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * hooks_guard.h: what would make path rules void: moving mounts, driving a task
 * that has other rights, the enforcement's own objects.
 */
#pragma once

#include "decide.h"

/* The mount topology of a confined task is frozen unless every layer allows
 * mounts. */
static __always_inline int on_mount(const struct vfsmount *mnt, const struct dentry *dentry)
{
	struct label *l = own_label();
	struct table *t;
	int denied;

	if (!l)
		return 0;
	t = table_of(l);
	if (t && t->flags & T_MOUNTS)
		return 0;
	l->s.steps = 0;
	if (mnt) {
		aim(&l->s, mnt, dentry);
		climb(&l->s);
	}
	denied = !t || !(t->flags & T_MOUNTS_AUDIT);
	report(l, how(t ? R_FROZEN : R_GONE, KIND_MODIFY, OP_MOUNT, denied));
	return ANSWER(denied, EPERM);
}

/* Changing who sees later mounts (private, slave) changes no path. */
#define MS_PRIVATE (1 << 18)
#define MS_SLAVE (1 << 19)
#define MS_REC 16384
#define MS_SILENT 32768

SEC("lsm/sb_mount")
int BPF_PROG(sb_mount, const char *dev, struct path *path, const char *type, unsigned long flags, void *data,
	     int ret)
{
	unsigned long only = flags & ~(unsigned long)(MS_REC | MS_SILENT);

	if (ret || only == MS_PRIVATE || only == MS_SLAVE)
		return ret;
	return on_mount(path->mnt, path->dentry);
}

SEC("lsm/sb_umount")
int BPF_PROG(sb_umount, struct vfsmount *mnt, int flags, int ret)
{
	if (ret)
		return ret;
	return on_mount(mnt, mnt->mnt_root);
}

SEC("lsm/sb_remount")
int BPF_PROG(sb_remount, struct super_block *sb, void *opts, int ret)
{
	if (ret)
		return ret;
	return on_mount(NULL, NULL);
}

SEC("lsm/sb_pivotroot")
int BPF_PROG(sb_pivotroot, struct path *old, struct path *new, int ret)
{
	if (ret)
		return ret;
	return on_mount(new->mnt, new->dentry);
}

SEC("lsm/move_mount")
int BPF_PROG(move_mount, struct path *from, struct path *to, int ret)
{
	if (ret)
		return ret;
	return on_mount(to->mnt, to->dentry);
}

/* Whether the running task, labelled, may drive `other`: only a task of its own
 * container that is in the same subject groups. They are worked out from the
 * programs in the other's label, here: its mask and scratch are its own. */
__noinline int same_subject(struct label *l, struct label *other)
{
	struct mask *m;
	struct table *t;
	u32 i;

	if (!l || !other || other->instance != l->instance || other->pending)
		return 0;
	t = table_of(l);
	if (!t)
		return 0;
	m = (struct mask *)l->next_mask;
	anybody(m);
	for (i = 0; i < PROGRAMS_MAX; i++)
		if (i < other->programs_n && add_groups(&l->s, other->programs[i], l->table, m, 0) < 0)
			return 0;
	for (i = 0; i < INHERIT_MAX; i++)
		if (i < other->inherited_n && add_groups(&l->s, other->inherited[i], l->table, m, 1) < 0)
			return 0;
	for (i = 0; i < MASK_WORDS; i++)
		if (l->mask[i] != m->word[i])
			return 0;
	return 1;
}

static __always_inline int refuse_task(struct label *l)
{
	struct table *t = table_of(l);
	bool denied = !t || t->flags & T_ENFORCE;

	l->s.steps = 0;
	report(l, how(R_TASK, KIND_MODIFY, OP_PTRACE, denied));
	return ANSWER(denied, EPERM);
}

SEC("lsm/ptrace_access_check")
int BPF_PROG(ptrace_check, struct task_struct *child, unsigned int mode, int ret)
{
	struct label *l, *other;

	if (ret || !(mode & PTRACE_MODE_ATTACH))
		return ret;
	l = own_label();
	if (!l)
		return 0;
	other = bpf_task_storage_get(&labels, child, NULL, 0);
	if (other && same_subject(l, other))
		return 0;
	return refuse_task(l);
}

SEC("lsm/ptrace_traceme")
int BPF_PROG(ptrace_traceme, struct task_struct *parent, int ret)
{
	struct label *l, *other;

	if (ret)
		return ret;
	l = own_label();
	if (!l)
		return 0;
	other = bpf_task_storage_get(&labels, parent, NULL, 0);
	if (!other || !other->instance || same_subject(l, other))
		return 0; /* an unconfined parent has all rights */
	return refuse_task(l);
}

/* bpf(2) from inside a container: our maps, programs and links are within
 * reach of whoever holds the capability, so all of it is refused. (What another
 * program returned is not looked at: its place differs, as 6.15 added an
 * argument, and after a denial this one is not run.) */
SEC("lsm/bpf")
int BPF_PROG(guard_bpf, int cmd)
{
	struct label *l = own_label();
	struct table *t;
	bool denied;

	if (!l)
		return 0;
	t = table_of(l);
	denied = !t || t->flags & T_ENFORCE;
	l->s.steps = 0;
	report(l, how(R_GUARD, KIND_MODIFY, OP_BPF, denied));
	return ANSWER(denied, EPERM);
}

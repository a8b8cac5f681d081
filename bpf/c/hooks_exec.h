/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * hooks_exec.h: who is confined, and from when (DESIGN, "who is confined").
 *
 *   bprm_creds_for_exec   once an exec: starts a list of its programs; gives a
 *                         pending label to the entrypoint of an armed binding
 *                         and to whoever joins an enforced one
 *   bprm_check_security   once a program (script, interpreters, binary): judges
 *                         the first one of a pending label (its open is past),
 *                         adds it to the list
 *   file_open             judges every other program with the old subject
 *   bprm_committed_creds  the programs become the subject, pending ends, armed
 *                         turns into enforced
 *
 * A failed exec leaves only the list, which the next exec starts anew, or a
 * pending label, which means nothing outside an exec.
 */
#pragma once

#include "decide.h"

/* Gives the task a pending label if it is the entrypoint or joins. */
static __always_inline int label_at_exec(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 ns = namespace_id(current_namespace());
	struct binding *b = bpf_map_lookup_elem(&bindings, &ns);
	struct container *c;
	struct label *l;
	u32 slot;

	if (!b)
		return 0;
	slot = b->slot;
	c = bpf_map_lookup_elem(&containers, &slot);
	if (!c || c->instance != b->instance)
		return -EACCES;
	if (c->state == STATE_ARMED && c->init != (u32)task->tgid)
		return 0;
	l = bpf_task_storage_get(&labels, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!l)
		return -ENOMEM;
	__sync_fetch_and_add(&c->births, 1);
	l->pending = 1;
	l->slot = slot;
	l->ns = ns;
	l->table = 0;
	l->reloads = 0;
	l->programs_n = 0;
	l->inherited_n = 0;
	l->next_n = 0;
	l->next_inherited_n = 0;
	l->instance = b->instance;
	return 0;
}

SEC("lsm/bprm_creds_for_exec")
int BPF_PROG(bprm_creds, struct linux_binprm *bprm, int ret)
{
	struct label *l;

	if (ret)
		return ret;
	l = own_label();
	if (!l)
		return label_at_exec();
	l->next_n = 0;
	return 0;
}

/* Keeps a program of the old subject if an inherit rule names it. Returns a
 * reason. */
__noinline int keep(struct label *l, u64 key, u32 header)
{
	struct mask *m;
	int kept;
	u32 i;

	if (!l)
		return R_GONE;
	m = (struct mask *)l->next_mask;
	kept = add_groups(&l->s, key, header, m, 1);
	if (kept < 0)
		return R_GONE;
	if (!kept)
		return R_NONE;
	for (i = 0; i < INHERIT_MAX; i++) {
		if (i >= l->next_inherited_n)
			break;
		if (l->next_inherited[i] == key)
			return R_NONE;
	}
	i = l->next_inherited_n;
	if (i >= INHERIT_MAX)
		return R_LIMIT;
	l->next_inherited[i] = key;
	l->next_inherited_n = i + 1;
	return R_NONE;
}

/* Works out the subject that the exec will have if it succeeds. */
__noinline int next_subject(struct label *l, u64 table)
{
	struct mask *m;
	int r = R_NONE;
	u32 i;

	if (!l)
		return R_GONE;
	m = (struct mask *)l->next_mask;
	anybody(m);
	l->next_inherited_n = 0;
	for (i = 0; i < PROGRAMS_MAX && !r; i++)
		if (i < l->programs_n)
			r = keep(l, l->programs[i], table);
	for (i = 0; i < INHERIT_MAX && !r; i++)
		if (i < l->inherited_n)
			r = keep(l, l->inherited[i], table);
	for (i = 0; i < PROGRAMS_MAX && !r; i++)
		if (i < l->next_n && add_groups(&l->s, l->next[i], table, m, 0) < 0)
			r = R_GONE;
	l->next_table = table;
	return r;
}

SEC("lsm/bprm_check_security")
int BPF_PROG(bprm_check, struct linux_binprm *bprm, int ret)
{
	struct label *l = any_label();
	struct file *file = bprm->file;
	struct table *t;
	u64 key = 0;
	u32 n, last;
	int r;

	if (ret || !l)
		return ret;
	n = l->next_n;
	if (l->pending && n == 0) {
		r = on_file(l, OP_EXEC, A_EXEC, file);
		if (r)
			return r;
	}
	t = table_of(l);
	if (!t)
		return -EACCES;
	aim(&l->s, file->f_path.mnt, file->f_path.dentry);
	if (!kernel_mount(l->s.mnt)) {
		key = intern(&l->s);
		if (!key && t->flags & T_ENFORCE)
			return refuse(l, t, OP_EXEC, A_EXEC, R_LIMIT);
	}
	/* While an upgrade has two generations attached, each adds it: once is enough. */
	last = n - 1;
	asm volatile("" : "+r"(last)); /* the bound is on what indexes: 6.1 */
	if (last >= PROGRAMS_MAX || l->next[last] != key) {
		if (n >= PROGRAMS_MAX)
			return refuse(l, t, OP_EXEC, A_EXEC, R_LIMIT);
		l->next[n] = key;
		l->next_n = n + 1;
	}
	r = next_subject(l, l->table);
	if (r == R_NONE)
		return 0;
	aim(&l->s, file->f_path.mnt, file->f_path.dentry);
	climb(&l->s);
	return refuse(l, t, OP_EXEC, A_EXEC, r);
}

SEC("lsm/bprm_committed_creds")
int BPF_PROG(bprm_commit, struct linux_binprm *bprm)
{
	struct label *l = any_label();
	struct container *c;

	if (!l)
		return 0;
	__builtin_memcpy(l->programs, l->next, sizeof(l->programs));
	__builtin_memcpy(l->inherited, l->next_inherited, sizeof(l->inherited));
	__builtin_memcpy(l->mask, l->next_mask, sizeof(l->mask));
	forget_rights(l);
	l->programs_n = l->next_n;
	l->inherited_n = l->next_inherited_n;
	l->table = l->next_table;
	l->reloads = 0;
	if (!l->pending)
		return 0;
	l->pending = 0;
	c = row_of(l);
	if (c && c->state == STATE_ARMED) {
		c->state = STATE_ENFORCED;
		aim(&l->s, bprm->file->f_path.mnt, bprm->file->f_path.dentry);
		climb(&l->s);
		report(l, how(R_NONE, KIND_EXEC, OP_LABEL, 0));
	}
	return 0;
}

SEC("lsm/task_alloc")
int BPF_PROG(task_alloc, struct task_struct *task, unsigned long clone_flags, int ret)
{
	struct label *l = own_label();
	struct container *c;
	struct label *child;

	if (ret || !l)
		return ret;
	child = bpf_task_storage_get(&labels, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!child)
		return -ENOMEM;
	__builtin_memcpy(child->mask, l->mask, sizeof(l->mask));
	__builtin_memcpy(child->programs, l->programs, sizeof(l->programs));
	__builtin_memcpy(child->inherited, l->inherited, sizeof(l->inherited));
	child->programs_n = l->programs_n;
	child->inherited_n = l->inherited_n;
	child->table = l->table;
	child->reloads = l->reloads;
	child->ns = l->ns;
	child->slot = l->slot;
	child->instance = l->instance;
	c = row_of(l);
	if (c)
		__sync_fetch_and_add(&c->births, 1);
	return 0;
}

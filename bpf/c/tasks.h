/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * tasks.h: what the daemon runs: a look at every task, and the id of a
 * namespace. One writer at a time (the daemon holds a lock).
 */
#pragma once

#include "decide.h"

/* One record a labelled task. */
struct seen {
	u64 instance;
	u32 pid;
	u32 tid;
};

/* Writes a record for every labelled task. */
SEC("iter/task")
int list_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct label *l;
	struct seen s = {};

	if (!task)
		return 0;
	l = bpf_task_storage_get(&labels, task, NULL, 0);
	if (!l || !l->instance)
		return 0;
	s.instance = l->instance;
	s.pid = task->tgid;
	s.tid = task->pid;
	bpf_seq_write(ctx->meta->seq, &s, sizeof(s));
	return 0;
}

/* Marks an interned program as wanted in this round of the sweep. */
static __always_inline void mark_program(u64 key, u32 round)
{
	struct program *p;

	p = key & LONG_KEY ? bpf_map_lookup_elem(&long_programs, &key) : bpf_map_lookup_elem(&programs, &key);
	if (p)
		p->used = round;
}

/* Marks the programs of every label. */
SEC("iter/task")
int mark_programs(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct node *n = the_node();
	struct label *l;
	u32 i;

	if (!task || !n)
		return 0;
	l = bpf_task_storage_get(&labels, task, NULL, 0);
	if (!l)
		return 0;
	for (i = 0; i < PROGRAMS_MAX; i++) {
		mark_program(l->programs[i], n->sweep);
		mark_program(l->next[i], n->sweep);
	}
	for (i = 0; i < INHERIT_MAX; i++) {
		mark_program(l->inherited[i], n->sweep);
		mark_program(l->next_inherited[i], n->sweep);
	}
	return 0;
}

/* Labels every task that is in an enforced namespace and has no label; its
 * subject is the file that it executes. Writes a record for each. */
SEC("iter/task")
int label_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	u32 zero = 0;
	struct label *made = bpf_map_lookup_elem(&draft, &zero), *l;
	struct container *c;
	struct binding *b;
	struct seen s = {};
	u64 proxy, ns, mm, exe;
	u32 slot;

	if (!task || !made)
		return 0;
	proxy = (u64)BPF_CORE_READ(task, nsproxy);
	if (!proxy)
		return 0;
	ns = namespace_id(GET64(proxy, struct nsproxy, mnt_ns));
	b = bpf_map_lookup_elem(&bindings, &ns);
	if (!b)
		return 0;
	slot = b->slot;
	c = bpf_map_lookup_elem(&containers, &slot);
	if (!c || c->instance != b->instance || c->state != STATE_ENFORCED)
		return 0;
	l = bpf_task_storage_get(&labels, task, NULL, 0);
	if (l && l->instance)
		return 0;
	made->programs_n = 0;
	mm = (u64)BPF_CORE_READ(task, mm);
	exe = mm ? GET64(mm, struct mm_struct, exe_file) : 0;
	if (exe) {
		made->s.mnt = mount_of(GET64(exe, struct file, f_path.mnt));
		made->s.dentry = GET64(exe, struct file, f_path.dentry);
		made->programs[0] = namespace_id(GET64(made->s.mnt, struct mount, mnt_ns)) == ns ? intern(&made->s) : 0;
		made->programs_n = 1;
	}
	made->pending = 0;
	made->inherited_n = 0;
	made->slot = slot;
	made->ns = ns;
	made->table = 0;
	made->instance = b->instance;
	if (!bpf_task_storage_get(&labels, task, made, BPF_LOCAL_STORAGE_GET_F_CREATE))
		return 0;
	__sync_fetch_and_add(&c->births, 1);
	s.instance = b->instance;
	s.pid = task->tgid;
	s.tid = task->pid;
	bpf_seq_write(ctx->meta->seq, &s, sizeof(s));
	return 0;
}

struct namespace_query {
	u32 fd;
	u32 pad;
};

/* The 64-bit id of the mount namespace behind one of the caller's own file
 * descriptors, into node.answer (0: none). The ioctl for it exists only from
 * 6.11. The caller has made sure that it is a mount namespace. */
SEC("syscall")
int find_namespace(struct namespace_query *q)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 fdt = (u64)BPF_CORE_READ(task, files, fdt);
	u32 max = GET32(fdt, struct fdtable, max_fds);
	struct node *n = the_node();
	u64 file, ns;

	if (!n)
		return 1;
	n->answer = 0;
	if (q->fd >= max)
		return 1;
	file = load64(GET64(fdt, struct fdtable, fd) + 8 * (u64)q->fd);
	ns = GET64(GET64(file, struct file, f_inode), struct inode, i_private);
	n->answer = namespace_id(ns - OFFSET(struct mnt_namespace, ns));
	return 0;
}

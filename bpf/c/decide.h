/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * decide.h: the one function that decides. Hooks fill in what is done to which
 * path (l->s.mnt, l->s.dentry, op, access) and return its answer.
 *
 *   label -> container row -> table -> state of the path -> row -> mask -> verdict
 */
#pragma once

#include "subject.h"

/* What the running task has for a label, be it that of no instance, or NULL. The
 * plain load makes the answer nearly free for tasks that never had one. */
static __always_inline struct label *stored_label(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return task->bpf_storage ? bpf_task_storage_get(&labels, task, NULL, 0) : NULL;
}

/* The running task's label, or NULL: not confined. */
static __always_inline struct label *any_label(void)
{
	struct label *l = stored_label();

	return l && l->instance ? l : NULL;
}

/* The label of a task whose first exec is over. */
static __always_inline struct label *own_label(void)
{
	struct label *l = any_label();

	return l && !l->pending ? l : NULL;
}

static __always_inline struct container *row_of(const struct label *l)
{
	u32 slot = l->slot;
	struct container *c = bpf_map_lookup_elem(&containers, &slot);

	return c && c->instance == l->instance ? c : NULL;
}

/* What a hook returns, in a form that every verifier sees to be in range (clang
 * turns a plain conditional into arithmetic that 6.12 rejects). */
#define ANSWER(denied, errno)                                                                  \
	({                                                                                     \
		long answer_ = 0;                                                              \
		if (denied)                                                                    \
			asm volatile("%0 = %1" : "=r"(answer_) : "i"(-(errno)));               \
		answer_;                                                                       \
	})

static __always_inline u32 first_kind(u32 access)
{
	u32 k;

	for (k = 0; k < KIND_COUNT; k++)
		if (access & (1 << k))
			return k;
	return 0;
}

static __always_inline u32 how(u32 reason, u32 kind, u32 op, u32 denied)
{
	return reason | kind << 8 | op << 16 | denied << 24;
}

/* The table now in force for a label, its mask brought up to date; NULL: the
 * container or the table is gone, or a program's path is lost. */
static __always_inline struct table *table_of(struct label *l)
{
	struct container *c = row_of(l);
	u64 now = ONCE(reloads), id;
	struct table *t;

	if (!c)
		return NULL;
	id = ONCE(c->table);
	t = (struct table *)cell_at(id);
	if (!t || t->id != id)
		return NULL;
	if (l->table != id) {
		if (refresh(l, id & 0xffffffff) != R_NONE)
			return NULL;
		l->table = id;
	}
	if (cache_on && !l->pending)
		l->reloads = cache_check ? ~now : now;
	return t;
}

/* Denies, unless every layer only audits; reports either way. */
static __always_inline int refuse(struct label *l, const struct table *t, u32 op, u32 access, u32 reason)
{
	bool denied = t->flags & T_ENFORCE;

	report(l, how(reason, first_kind(access), op, denied));
	return ANSWER(denied, EACCES);
}

/* Something without a path: a pipe, a socket, a memfd. */
static __always_inline int without_path(struct label *l, const struct table *t, u32 op, u32 access)
{
	int denied;

	if (!(access & A_EXEC) || t->flags & T_MEMFD)
		return 0;
	climb(&l->s);
	denied = !(t->flags & T_MEMFD_AUDIT);
	report(l, how(R_MEMFD, KIND_EXEC, op, denied));
	return denied;
}

/* 1: denied, 0: allowed. `row`: what known_row() said. */
__noinline int decide(struct label *l, u32 op, u32 access, u32 row)
{
	bool known = row;
	struct table *t;
	struct state *st;
	u64 ns;
	int r;

	if (!l)
		return 1;
	ns = PEEK(l->s.mnt, struct mount, mnt_ns);
	if (ns == MNT_NS_INTERNAL && layer_mount(l->s.mnt))
		return 0;
	t = table_of(l);
	if (!t) {
		l->s.steps = 0;
		report(l, how(R_GONE, first_kind(access), op, 1));
		return 1;
	}
	if (ns == MNT_NS_INTERNAL)
		return without_path(l, t, op, access);
	if (!known) {
		if (cache_on)
			l->s.stamp = moves(ns);
		r = walk(&l->s, t->paths, l->ns);
		st = (struct state *)cell_at(l->s.state);
		if (r == R_NONE && !st)
			r = R_GONE;
		if (r != R_NONE || !st) {
			if (cache_on)
				COUNT(l, refused[NO_PATH]);
			if (r == R_FOREIGN)
				climb(&l->s); /* for the event: as much of the path as there is */
			return refuse(l, t, op, access, r) != 0;
		}
		row = st->out;
		if (cache_on && !l->pending)
			fill(l);
		if (remembers(l, row, access))
			return 0;
	}
	r = judge_row((struct mask *)l->mask, row, access, t->words);
	if (!r) {
		remember(l, row, access);
		return 0;
	}
	if (known)
		climb(&l->s); /* for the event */
	report(l, how(R_RULE, r >> 8, op, (r & 0xff) == DENIED));
	return (r & 0xff) == DENIED;
}

/* Whether a walk leads where the cache said that it does. What moves in between
 * is for the caller to see. */
static __always_inline bool walk_agrees(struct label *l, u32 state)
{
	struct table *t = l ? (struct table *)cell_at(l->table) : NULL;

	if (!t)
		return 0;
	return walk(&l->s, t->paths, l->ns) == R_NONE && l->s.state == state;
}

/* What cache_check asks for at every hit: denies nothing and counts. Returns
 * whether the hit may be used. */
static __always_inline bool agrees(struct label *l, u64 mnt, u64 dentry, u32 row)
{
	u64 ns = PEEK(mnt, struct mount, mnt_ns), before = moves(ns);
	u32 state = l->s.state, seq = dentry_sequence(dentry);

	if (cached(l, mnt, dentry, false) != row || l->s.state != state)
		return false; /* the entry is not the same any more */
	if (walk_agrees(l, state))
		return true;
	if (before != moves(ns) || seq != dentry_sequence(dentry) || l->reloads != ~ONCE(reloads))
		return false; /* something moved in between */
	COUNT(l, disagreed);
	report(l, how(R_CACHE, KIND_READ, OP_OPEN, 0));
	return false;
}

/* What cached() says of the path aimed at, if the label's table is in force (and
 * its first exec over); else 0. */
__noinline u32 known_row(struct label *l)
{
	u64 mnt, dentry;
	u32 row;

	if (!l || l->reloads != (cache_check ? ~ONCE(reloads) : ONCE(reloads)))
		return 0;
	mnt = TYPED(struct mount, l->s.mnt);
	dentry = TYPED(struct dentry, l->s.dentry);
	row = cached(l, mnt, dentry, false);
	if (cache_check && row && row != OF_LAYER && !agrees(l, mnt, dentry, row))
		return 0;
	return row;
}

/* What decide() says of a path, sooner if it can be. */
static __always_inline int on_path(struct label *l, u32 op, u32 access, const struct vfsmount *mnt,
				   const struct dentry *dentry)
{
	u32 row;

	aim(&l->s, mnt, dentry);
	row = known_row(l);
	if (row == OF_LAYER || (row && remembers(l, row, access)))
		return 0;
	return ANSWER(decide(l, op, access, row), EACCES);
}

/* on_path() for an open file. */
static __always_inline int on_file(struct label *l, u32 op, u32 access, struct file *file)
{
	return on_path(l, op, access, file->f_path.mnt, file->f_path.dentry);
}

/* on_file() for a mapping. Of a file on overlayfs the kernel (from 6.7) maps the
 * file of the layer, in a struct backing_file that knows the path by which it
 * was opened. */
static __always_inline int on_mapping(struct label *l, struct file *file)
{
	aim(&l->s, file->f_path.mnt, file->f_path.dentry);
	if (bpf_core_type_exists(struct backing_file) && kernel_mount(l->s.mnt) && layer_mount(l->s.mnt)) {
		u64 at = number_of(&l->s, file);

		l->s.mnt = mount_of(GET64(at, struct backing_file, user_path.mnt));
		l->s.dentry = GET64(at, struct backing_file, user_path.dentry);
	}
	return ANSWER(decide(l, OP_MMAP, A_EXEC, 0), EACCES);
}

/* Whether this is overlayfs opening the file of a layer, before 6.7: it carries
 * the path that was judged already, with an inode of another file system. */
static __always_inline bool inner_open(struct file *file)
{
	return !bpf_core_type_exists(struct backing_file) && file->f_inode != file->f_path.dentry->d_inode;
}

static __always_inline bool is_directory(const struct dentry *dentry)
{
	struct inode *inode = dentry->d_inode;

	return inode && (inode->i_mode & S_IFMT) == S_IFDIR;
}

/* Whether what moves from state `from` to the path just judged may do so:
 * content may not become open to subjects that could not get at it. */
static __always_inline int may_move(struct label *l, u32 from, bool directory, u32 op)
{
	struct table *t = table_of(l);
	u32 to = l->s.state;
	struct state *a, *b;

	if (from == to)
		return 0;
	if (!t)
		return -EACCES;
	if (directory) {
		a = (struct state *)cell_at(from);
		b = (struct state *)cell_at(to);
		if (!a || !b || !(a->flags & b->flags & S_FINAL))
			return refuse(l, t, op, A_CREATE, R_SUBTREE);
	}
	if (gains(from, to, t->words))
		return refuse(l, t, op, A_CREATE, directory ? R_SUBTREE : R_GAIN);
	return 0;
}

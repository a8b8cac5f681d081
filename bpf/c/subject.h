/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * subject.h: the programs of a task. A program's path is interned once, bytes
 * and all, so that any table can say later which subject groups it is in: a
 * reload derives every label's mask anew from its programs.
 */
#pragma once

#include "report.h"

struct run {
	struct scratch *s;
	u64 path;
	u32 len;
};

/* bpf_loop callback: at byte i of the path; takes a step at the end of each
 * component. What changes from call to call is in the scratch, because older
 * verifiers look at a callback once only. */
static long run_byte(u32 i, struct run *r)
{
	struct scratch *s = r->s;
	u32 begin = s->begin;

	if (i < r->len && (u8)load64(r->path + i) != '/')
		return 0;
	if (i > begin) {
		s->name_at = r->path + begin;
		s->name_len = i - begin;
		s->state = step(s, s->state);
	}
	s->begin = i + 1;
	return i >= r->len;
}

/* Runs an automaton from `start` over `len` path bytes at kernel address
 * `path`; the result is in s->state. */
__noinline int run_bytes(struct scratch *s, u64 path, u32 len, u32 start)
{
	struct run r = { .s = s, .path = path, .len = len };

	if (!s)
		return R_GONE;
	s->begin = 0;
	s->state = start;
	bpf_loop(PATH_BYTES + 1, run_byte, &r, 0);
	return R_NONE;
}

/* Adds the groups of program `key` under table `t` to *into, all of them or
 * those of `inherit` rules; R_GONE if the program's path is lost. Returns
 * R_NONE, and in *kept whether an inherit rule names it. */
__noinline int add_groups(struct scratch *s, u64 key, u32 header, struct mask *into, u32 only_inherit)
{
	struct table *t = (struct table *)cell_at(header);
	struct node *n = the_node();
	struct program *p;
	struct state *st;
	u32 w, len, words, inherit, programs, out;
	u64 path;
	int kept = 0;

	if (!s || !into || !t || !n)
		return -R_GONE;
	if (!key)
		return 0; /* a program without a path is nobody's */
	p = key & LONG_KEY ? bpf_map_lookup_elem(&long_programs, &key) : bpf_map_lookup_elem(&programs, &key);
	if (!p)
		return -R_GONE;
	p->used = n->sweep;
	len = p->len;
	path = number_of(s, p->path);
	words = t->words;
	inherit = t->inherit;
	programs = t->programs;
	run_bytes(s, path, len, programs);
	st = (struct state *)cell_at(s->state);
	if (!st)
		return -R_GONE;
	out = st->out;
	for (w = 0; w < MASK_WORDS; w++) {
		u64 groups, lasting;

		if (w >= words)
			break;
		groups = word_at(out, w);
		lasting = groups & word_at(inherit, w);
		if (lasting)
			kept = 1;
		into->word[w] |= only_inherit ? lasting : groups;
	}
	return kept;
}

static __always_inline void anybody(struct mask *m)
{
	__builtin_memset(m, 0, sizeof(*m));
	m->word[0] = 1;
}

/* Derives the label's mask for a table from the programs it remembers. */
__noinline int refresh(struct label *l, u64 table)
{
	struct mask *m;
	u32 i;

	if (!l)
		return R_GONE;
	m = (struct mask *)l->mask;
	anybody(m);
	for (i = 0; i < PROGRAMS_MAX; i++) {
		if (i >= l->programs_n)
			break;
		if (add_groups(&l->s, l->programs[i], table, m, 0) < 0)
			return R_GONE;
	}
	for (i = 0; i < INHERIT_MAX; i++) {
		if (i >= l->inherited_n)
			break;
		if (add_groups(&l->s, l->inherited[i], table, m, 1) < 0)
			return R_GONE;
	}
	l->table = table;
	return R_NONE;
}

/* The key of the path on the desk: a seeded hash of its bytes. */
__noinline u64 path_key(struct desk *d, u64 seed)
{
	u64 h = seed;
	u32 i, len;

	if (!d)
		return 0;
	len = d->event.path.len;
	for (i = 0; i < PATH_BYTES / 8; i++) {
		u64 word;

		if (i * 8 >= len)
			break;
		word = *(u64 *)&d->event.path.path[i * 8];
		if (len - i * 8 < 8)
			word &= (1ULL << (8 * (len & 7))) - 1;
		h = hash_word(h, word);
	}
	h = hash_word(h, len);
	h &= ~LONG_KEY;
	return h ? h : 1;
}

/* Whether an interned program has the path on the desk. */
static __always_inline bool same_path(const struct desk *d, const u8 *path, u32 len, u32 bound)
{
	u32 i;

	if (len != d->event.path.len)
		return false;
	for (i = 0; i < bound / 8; i++) {
		u64 difference;

		if (i * 8 >= len)
			break;
		difference = *(u64 *)&d->event.path.path[i * 8] ^ *(const u64 *)&path[i * 8];
		if (len - i * 8 < 8)
			difference &= (1ULL << (8 * (len & 7))) - 1;
		if (difference)
			return false;
	}
	return true;
}

/* Interns the path on the desk: its key, or 0 if there is no room or if another
 * path has the key (keys are seeded: it can't be brought about). */
__noinline u64 intern_path(struct desk *d)
{
	struct node *n = the_node();
	u64 key;
	u32 len;

	if (!d || !n)
		return 0;
	len = d->event.path.len;
	if (len > PATH_BYTES)
		return 0;
	key = path_key(d, n->seed);
	d->event.path.used = n->sweep;
	if (len <= SHORT_PROGRAM) {
		struct program *p = bpf_map_lookup_elem(&programs, &key);

		if (!p) {
			bpf_map_update_elem(&programs, &key, &d->event.path, BPF_NOEXIST);
			p = bpf_map_lookup_elem(&programs, &key);
		}
		if (!p || !same_path(d, p->path, p->len, SHORT_PROGRAM))
			return 0;
		p->used = n->sweep;
	} else {
		struct long_program *p;

		key |= LONG_KEY;
		p = bpf_map_lookup_elem(&long_programs, &key);
		if (!p) {
			bpf_map_update_elem(&long_programs, &key, &d->event.path, BPF_NOEXIST);
			p = bpf_map_lookup_elem(&long_programs, &key);
		}
		if (!p || !same_path(d, p->path, p->len, PATH_BYTES))
			return 0;
		p->used = n->sweep;
	}
	return key;
}

/* Interns the program at (s->mnt, s->dentry). */
__noinline u64 intern(struct scratch *s)
{
	struct desk *d;
	u64 key = 0;
	u32 i;

	if (!s)
		return 0;
	d = take_desk();
	if (!d)
		return 0;
	for (i = 0; i < WALK_TRIES; i++) {
		u64 before = both_locks();

		if (before & 0x100000001ULL)
			continue;
		if (climb(s) != R_NONE || spell(d, s) != R_NONE) {
			if (both_locks() == before)
				break;
			continue;
		}
		if (both_locks() == before) {
			key = intern_path(d);
			break;
		}
	}
	leave_desk(d);
	return key;
}

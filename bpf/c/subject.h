/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * subject.h: the programs of a task. A program's path is interned once, bytes
 * and all, so that any table can say later which subject groups it is in: a
 * reload derives every label's mask anew from its programs.
 */
#pragma once

#include "report.h"

/* At byte i of the path; takes a step at the end of each component. */
static long run_byte(u32 i, struct round *r)
{
	struct scratch *s = r->s;
	u32 begin = s->at, len = r->b;

	if (i < len && (u8)load64(r->a + i) != '/')
		return 0;
	if (i > begin) {
		s->name_at = r->a + begin;
		s->name_len = i - begin;
		s->state = step(s, s->state);
	}
	s->at = i + 1;
	return i >= len;
}

/* Runs an automaton from `start` over `len` path bytes at kernel address
 * `path`; the result is in s->state. */
static __always_inline int run_bytes(struct scratch *s, u64 path, u32 len, u32 start)
{
	struct round r = { .s = s, .a = path, .b = len };

	if (!s)
		return R_GONE;
	s->at = 0;
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
	u32 w, len, words, inherit, start, out;
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
	start = t->programs;
	run_bytes(s, path, len, start);
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
	forget_rights(l);
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

struct desk_round {
	struct desk *d;
	struct scratch *s;
	u64 path;
};

/* Word i of the path on the desk, zero-padded, and how many bytes are left. */
static __always_inline u64 desk_word(struct desk *d, u32 i, u32 *left)
{
	*left = d->event.path.len - i * 8;
	return *(u64 *)&d->event.path.path[(i * 8) & (PATH_BYTES - 1)];
}

static long key_word(u32 i, struct desk_round *r)
{
	u32 left;
	u64 word = desk_word(r->d, i, &left);

	r->s->name[0] = hash_word(r->s->name[0], left < 8 ? first_bytes(word, left) : word);
	return left <= 8;
}

/* The key of the path on the desk: a seeded hash of its bytes. */
__noinline u64 path_key(struct desk *d, struct scratch *s, u64 seed)
{
	struct desk_round r = { .d = d, .s = s };

	if (!d || !s)
		return 0;
	s->name[0] = hash_word(seed, d->event.path.len);
	bpf_loop(PATH_BYTES / 8, key_word, &r, 0);
	return s->name[0] & ~LONG_KEY;
}

static long compare_word(u32 i, struct desk_round *r)
{
	u32 left;
	u64 difference = desk_word(r->d, i, &left) ^ load64(r->path + i * 8);

	if (left < 8)
		difference = first_bytes(difference, left);
	if (difference)
		r->s->result = 0;
	return difference || left <= 8;
}

/* Whether the `len` bytes at kernel address `path` are the path on the desk. */
__noinline int same_path(struct desk *d, struct scratch *s, u64 path, u32 len)
{
	struct desk_round r = { .d = d, .s = s, .path = path };

	if (!d || !s || len != d->event.path.len)
		return 0;
	s->result = 1;
	bpf_loop(PATH_BYTES / 8, compare_word, &r, 0);
	return s->result;
}

/* Interns the path on the desk: its key, or 0 if there is no room or if another
 * path has the key (keys are seeded: it can't be brought about). */
static __always_inline u64 intern_path(struct desk *d, struct scratch *s)
{
	struct node *n = the_node();
	u64 key;
	u32 len;

	if (!d || !s || !n)
		return 0;
	len = d->event.path.len;
	if (len > PATH_BYTES)
		return 0;
	key = path_key(d, s, n->seed);
	d->event.path.used = n->sweep;
	if (len <= SHORT_PROGRAM) {
		struct program *p = bpf_map_lookup_elem(&programs, &key);

		if (!p) {
			bpf_map_update_elem(&programs, &key, &d->event.path, BPF_NOEXIST);
			p = bpf_map_lookup_elem(&programs, &key);
		}
		if (!p || !same_path(d, s, number_of(s, p->path), p->len))
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
		if (!p || !same_path(d, s, number_of(s, p->path), p->len))
			return 0;
		p->used = n->sweep;
	}
	return key;
}

/* Spells the path of (s->mnt, s->dentry) onto the desk: R_BUSY if a rename or a
 * mount came in between. */
__noinline int spell_whole(struct desk *d, struct scratch *s)
{
	u64 before = both_locks();
	int r;

	if (!d || !s)
		return R_LIMIT;
	if (before & BEING_WRITTEN)
		return R_BUSY;
	r = climb(s);
	if (r == R_NONE)
		r = spell(d, s);
	return both_locks() == before ? r : R_BUSY;
}

/* Interns the program at (s->mnt, s->dentry): its key, or 0. */
__noinline u64 intern(struct scratch *s)
{
	struct desk *d;
	u64 key = 0;
	int r = R_BUSY;
	u32 i;

	if (!s)
		return 0;
	d = take_desk();
	if (!d)
		return 0;
	for (i = 0; i < WALK_TRIES && r == R_BUSY; i++)
		r = spell_whole(d, s);
	if (r == R_NONE)
		key = intern_path(d, s);
	leave_desk(d);
	return key;
}

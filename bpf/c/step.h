/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * step.h: one step of a component automaton on one name. The Go twin is
 * policy.(*DFA).Step; the bpf package's layout.go writes what is read here.
 */
#pragma once

#include "read.h"

static __always_inline u64 hash_word(u64 h, u64 word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15ULL;
	return h ^ (h >> 29);
}

/* Reads the name at s->name_at into s->name, whole words, zero-padded, and
 * returns its hash. Names longer than NAME_BYTES do not exist in the VFS. */
static __always_inline u64 read_name(struct scratch *s, u32 seed)
{
	u64 at = s->name_at, h = seed;
	u32 left = s->name_len;
	u32 i;

	for (i = 0; i < NAME_WORDS; i++) {
		u64 word;

		asm volatile("" : "+r"(i)); /* else clang indexes by name_len / 8, unbounded to 6.1 */
		word = load64(at + 8 * i);
		if (left < 8) {
			word &= (1ULL << (8 * (left & 7))) - 1;
			s->name[i] = word;
			return hash_word(h, word);
		}
		s->name[i] = word;
		h = hash_word(h, word);
		left -= 8;
		if (!left)
			break;
	}
	return h;
}

/* Whether the part of the name in s that is beyond an edge's own words equals
 * what cell `more` and those after it hold. */
__noinline int same_rest(struct scratch *s, u32 more)
{
	u32 i;

	if (!s)
		return 0;
	for (i = EDGE_WORDS; i < NAME_WORDS; i++) {
		struct cell *c;

		if (i >= (s->name_len + 7) / 8)
			return 1;
		c = cell_at(more + (i - EDGE_WORDS) / CELL_WORDS);
		if (!c || c->word[(i - EDGE_WORDS) % CELL_WORDS] != s->name[i])
			return 0;
	}
	return 1;
}

/* Whether the name in s equals the edge's. */
static __always_inline int same_name(struct scratch *s, const struct edge *e)
{
	u32 i;

	if (e->len != s->name_len)
		return 0;
	for (i = 0; i < EDGE_WORDS; i++) {
		if (i >= (s->name_len + 7) / 8)
			return 1;
		if (e->name[i] != s->name[i])
			return 0;
	}
	return e->len <= 8 * EDGE_WORDS || same_rest(s, e->more);
}

/* Looks at one slot for the name in s: the state that its edge leads to, 0 if
 * the slot is empty, OTHER_NAME if another name is there. */
#define OTHER_NAME (~0u)
static __always_inline u32 find_edge(struct scratch *s, u32 slot)
{
	struct edge *e = (struct edge *)cell_at(slot);

	if (!s || !e || !e->len)
		return 0;
	return same_name(s, e) ? e->next : OTHER_NAME;
}

static __always_inline u32 u16_at(u32 base, u32 index)
{
	struct cell *c = cell_at(base + index / 32);

	return c ? c->quarter[index % 32] : 0;
}

static __always_inline u32 u32_at(u32 base, u32 index)
{
	struct cell *c = cell_at(base + index / 16);

	return c ? c->half[index % 16] : 0;
}

struct glob_round {
	struct scratch *s;
	struct glob *g;
};

static long match_byte(u32 i, struct glob_round *r)
{
	struct scratch *s = r->s;
	struct glob *g = r->g;
	struct cell *bytes;
	u8 b, class;

	if (i >= s->name_len || i >= 8 * NAME_WORDS || s->at == g->dead)
		return 1;
	b = ((u8 *)s->name)[i];
	bytes = cell_at(g->bytes + b / CELL_BYTES);
	if (!bytes)
		return 1;
	class = bytes->byte[b % CELL_BYTES];
	s->at = u16_at(g->next, s->at * g->classes + class);
	return 0;
}

/* Runs the byte automaton over the name in s: class + 1, or 0. */
__noinline u32 match_glob(struct scratch *s, u32 at)
{
	struct glob_round r = { .s = s, .g = (struct glob *)cell_at(at) };

	if (!s || !r.g)
		return 0;
	s->at = 0;
	bpf_loop(NAME_BYTES, match_byte, &r, 0);
	return s->at == r.g->dead ? 0 : u16_at(r.g->accept, s->at);
}

/* The state after the name at s->name_at, s->name_len, from state `from`; 0 if
 * the table is damaged (cell 0 is never a state). */
__noinline u32 step(struct scratch *s, u32 from)
{
	struct state *st = (struct state *)cell_at(from);
	u32 class, i, next = 0;
	u64 h;

	if (!s || !st)
		return 0;
	if (s->name_len == 0 || s->name_len > NAME_BYTES)
		return 0;
	if (!(st->flags & (S_EDGES | S_GLOB)))
		return st->other;
	h = read_name(s, st->seed);
	if (st->flags & S_EDGES) {
		for (i = 0; i < PROBE_MAX; i++) {
			next = find_edge(s, st->edges + (((u32)(h >> 32) + i) & st->edge_mask));
			if (next != OTHER_NAME || st->flags & S_HOME)
				break;
		}
	}
	if (next != 0 && next != OTHER_NAME)
		return next;
	if (st->flags & S_GLOB) {
		class = match_glob(s, st->glob);
		if (class)
			return u32_at(st->glob_next, class - 1);
	}
	return st->other;
}

/* The part of a little-endian word that is its first `len` bytes, len < 8. */
static __always_inline u64 first_bytes(u64 word, u32 len)
{
	return word & ((1ULL << (8 * (len & 7))) - 1);
}

static __always_inline u32 name_length(u64 dentry)
{
	return THROUGH(dentry, struct dentry, d_name.len);
}

/*
 * Where a dentry keeps a short name. Names of less than 32 bytes are always
 * there (from 6.10 of less than 40): a name gets memory of its own only if it is
 * longer, and takes its length along when dentries exchange names (fs/dcache.c,
 * __d_alloc, swap_names, copy_name).
 */
#define SHORT_NAME 15
#define SHORT_NAME_AT                                                                          \
	(bpf_core_field_exists(struct dentry, d_iname) ? OFFSET(struct dentry, d_iname)        \
						       : OFFSET(struct dentry___short, d_shortname))

/*
 * The edge for a dentry's short name of `len` bytes, or another, or NULL.
 * *same says which. There is no NUL in a name, and edges are padded with them:
 * where all bytes up to the end of a word are equal, one of them being a NUL, so
 * is the length.
 */
static __always_inline const struct edge *short_edge(const struct state *st, u64 dentry, u32 len, bool *same, const bool fast)
{
	u64 at = dentry + SHORT_NAME_AT, h, first, second;
	const struct edge *e;

	first = fast || HAVE_CAST ? *(u64 *)at : probe64(at);
	if (len < 8) {
		first = first_bytes(first, len);
		h = hash_word(st->seed, first);
		e = (const struct edge *)cell_at(st->edges + ((u32)(h >> 32) & st->edge_mask));
		*same = e && e->name[0] == first;
		return e;
	}
	h = hash_word(st->seed, first);
	second = 0;
	if (len > 8) {
		second = first_bytes(fast || HAVE_CAST ? *(u64 *)(at + 8) : probe64(at + 8), len);
		h = hash_word(h, second);
	}
	e = (const struct edge *)cell_at(st->edges + ((u32)(h >> 32) & st->edge_mask));
	*same = e && e->name[0] == first && e->name[1] == second;
	return e;
}

/*
 * step() by the name of a dentry from cell `from`, where st is. Nearly every
 * name is found here without a call: a short one, and literal. *out is the
 * `out` of the state returned. `fast`: see FAST_THROUGH.
 */
static __always_inline u32 step_by(struct scratch *s, u32 from, const struct state *st, u64 dentry, u32 *out, const bool fast)
{
	u32 flags = st->flags, len;
	const struct state *next;
	const struct edge *e;
	bool same;

	if (!(flags & S_EDGES) && !(flags & S_GLOB))
		goto other;
	len = fast ? FAST_THROUGH(dentry, struct dentry, d_name.len) : name_length(dentry);
	if (flags & S_EDGES && len - 1 < SHORT_NAME) {
		e = short_edge(st, dentry, len, &same, fast);
		if (e && same) {
			*out = e->out;
			return e->next;
		}
		if (e && (!e->len || flags & S_HOME) && !(flags & S_GLOB))
			goto other;
	}
	s->name_at = THROUGH(dentry, struct dentry, d_name.name);
	s->name_len = len;
	from = step(s, from);
	next = (const struct state *)cell_at(from);
	*out = next ? next->out : 0;
	return next ? from : 0;
other:
	*out = st->other_out;
	return st->other;
}

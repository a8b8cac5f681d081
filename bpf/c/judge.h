/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * judge.h: from a state and a subject's mask to a verdict, and the comparison
 * of two rows for link and rename. The Go twins are Automaton.Judge and Gain.
 */
#pragma once

#include "walk.h"

#define DENIED 1
#define REPORTED 2 /* allowed, but an audit layer denies */

static __always_inline u64 word_at(u32 base, u32 index)
{
	struct cell *c = cell_at(base + index / CELL_WORDS);

	return c ? c->word[index % CELL_WORDS] : 0;
}

struct mask {
	u64 word[MASK_WORDS];
};

/* Whether the mask of `words` words at word `index` of the stream meets `m`. */
__noinline int meets(struct mask *m, u32 base, u32 index, u32 words)
{
	u32 w;

	if (!m)
		return 0;
	for (w = 0; w < MASK_WORDS; w++) {
		if (w >= words)
			break;
		if (word_at(base, index + w) & m->word[w])
			return 1;
	}
	return 0;
}

#define GRANTS_MAX 8 /* layers */

/* One right: a stream at cell `right`, see abi.h. */
__noinline int judge_right(struct mask *m, u32 right, u32 words)
{
	struct cell *first = cell_at(right);
	u32 grants, audits, i, at;

	if (!m || !first)
		return DENIED;
	grants = first->word[0] & 0xff;
	audits = (first->word[0] >> 8) & 0xff;
	if (words == 0 || words > MASK_WORDS)
		return DENIED;
	if (meets(m, right, 1, words))
		return DENIED;
	at = 1 + words;
	for (i = 0; i < GRANTS_MAX; i++) {
		if (i == grants)
			break;
		if (!meets(m, right, at, words))
			return DENIED;
		at += words;
	}
	if (meets(m, right, at, words))
		return REPORTED;
	at += words;
	for (i = 0; i < GRANTS_MAX; i++) {
		if (i == audits)
			break;
		if (!meets(m, right, at, words))
			return REPORTED;
		at += words;
	}
	return 0;
}

/* Judges the kinds in `access` by a row. Returns 0, or DENIED or REPORTED with
 * the first such kind shifted left by 8. */
__noinline int judge_row(struct mask *m, u32 at, u32 access, u32 words)
{
	struct row *row = (struct row *)cell_at(at);
	int reported = 0;
	u32 k;

	if (!m || !row)
		return DENIED;
	for (k = 0; k < KIND_COUNT; k++) {
		int v;

		if (!(access & (1 << k)) || !row->right[k])
			continue;
		v = judge_right(m, row->right[k], words);
		if (v == DENIED)
			return DENIED | k << 8;
		if (v && !reported)
			reported = v | k << 8;
	}
	return reported;
}

/*
 * A label remembers the rows at which it was allowed something, and what:
 * while its mask is the same, so is the answer, however many layers and
 * programs were behind it.
 */
static __always_inline bool remembers(const struct label *l, u32 row, u32 access)
{
	u64 memo = l->memo[row % MEMO];

	return memo >> 8 == row && !(access & ~(u32)memo);
}

static __always_inline void remember(struct label *l, u32 row, u32 access)
{
	u64 memo = l->memo[row % MEMO];

	l->memo[row % MEMO] = (memo >> 8 == row ? memo : (u64)row << 8) | access;
}

/* Whenever the mask changes. */
static __always_inline void forget_rights(struct label *l)
{
	__builtin_memset(l->memo, 0, sizeof(l->memo));
}

/* Whether mask `a` of one stream is a subset of mask `b` of another. */
__noinline int subset(u32 abase, u32 a, u32 bbase, u32 b, u32 words)
{
	u32 w;

	for (w = 0; w < MASK_WORDS; w++) {
		if (w >= words)
			break;
		if (word_at(abase, a + w) & ~word_at(bbase, b + w))
			return 0;
	}
	return 1;
}

/* Whether some grant of `new` is a subset of the grant at word `at` of `old`. */
__noinline int implied(u32 old, u32 at, u32 new, u32 words)
{
	struct cell *first = cell_at(new);
	u32 grants, j;

	if (!first || words == 0 || words > MASK_WORDS)
		return 0;
	grants = first->word[0] & 0xff;
	for (j = 0; j < GRANTS_MAX; j++) {
		if (j == grants)
			break;
		if (subset(new, 1 + words + j * words, old, at, words))
			return 1;
	}
	return 0;
}

/* Whether some subject may have a right under `new` that it lacks under `old`. */
__noinline int gains_right(u32 old, u32 new, u32 words)
{
	struct cell *before = cell_at(old), *after;
	u32 grants, i;

	if (!old)
		return 0; /* everybody had it */
	if (words == 0 || words > MASK_WORDS || !before)
		return 1;
	if (!new) /* everybody has it now */
		return (before->word[0] & 0xff) || !subset(old, 1, 0, 0, words);
	after = cell_at(new);
	if (!after)
		return 1;
	if (after->word[1] & 1)
		return 0; /* nobody has it now */
	if (!subset(old, 1, new, 1, words))
		return 1;
	grants = before->word[0] & 0xff;
	for (i = 0; i < GRANTS_MAX; i++) {
		if (i == grants)
			break;
		if (!implied(old, 1 + words + i * words, new, words))
			return 1;
	}
	return 0;
}

/* Whether moving content from state `old` to state `new` would give any
 * subject read, modify or exec that it lacks. */
__noinline int gains(u32 old, u32 new, u32 words)
{
	struct state *a = (struct state *)cell_at(old);
	struct state *b = (struct state *)cell_at(new);
	struct row *ra, *rb;

	if (!a || !b)
		return 1;
	if (a->out == b->out)
		return 0;
	ra = (struct row *)cell_at(a->out);
	rb = (struct row *)cell_at(b->out);
	if (!ra || !rb)
		return 1;
	return gains_right(ra->right[KIND_READ], rb->right[KIND_READ], words) ||
	       gains_right(ra->right[KIND_MODIFY], rb->right[KIND_MODIFY], words) ||
	       gains_right(ra->right[KIND_EXEC], rb->right[KIND_EXEC], words);
}

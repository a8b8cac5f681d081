/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * report.h: spells paths and writes events. Nothing here decides; what can't
 * be reported is counted.
 */
#pragma once

#include "cache.h"

static __always_inline struct node *the_node(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&node, &zero);
}

static __always_inline struct desk *take_desk(void)
{
	u32 first = bpf_get_smp_processor_id() * 8;
	u32 i;

	for (i = 0; i < DESKS; i++) {
		u32 at = (first + i) % DESKS;
		struct desk *d = bpf_map_lookup_elem(&desks, &at);

		if (d && __sync_val_compare_and_swap(&d->taken, 0, 1) == 0)
			return d;
	}
	return NULL;
}

static __always_inline void leave_desk(struct desk *d)
{
	__sync_lock_test_and_set(&d->taken, 0);
}

struct spell_round {
	struct desk *d;
	struct scratch *s;
};

/* Adds "/" and a name to the path on the desk. */
static long spell_one(u32 i, struct spell_round *r)
{
	struct long_program *path = &r->d->event.path;
	struct scratch *s = r->s;
	u32 step = s->steps - 1 - i, at = path->len, len;
	u64 dentry;

	if (step >= WALK_MAX)
		return 1;
	dentry = s->walk[step];
	if (!dentry)
		return 0;
	len = name_length(TYPED(struct dentry, dentry));
	if (len > NAME_BYTES || at + len + 1 >= PATH_BYTES) {
		s->result = R_LIMIT;
		return 1;
	}
	path->path[at & (PATH_BYTES - 1)] = '/';
	at++;
	bpf_probe_read_kernel(&path->path[at & (PATH_BYTES - 1)], len & 0xff,
			      (void *)GET64(dentry, struct dentry, d_name.name));
	path->len = at + len;
	return 0;
}

/* Spells s->walk, from the root down, onto the desk. Returns R_LIMIT if it does
 * not fit; what fits is there. */
__noinline int spell(struct desk *d, struct scratch *s)
{
	struct spell_round r = { .d = d, .s = s };

	if (!d || !s)
		return R_LIMIT;
	d->event.path.len = 0;
	s->result = R_NONE;
	bpf_loop(WALK_MAX, spell_one, &r, 0);
	if (!d->event.path.len) {
		d->event.path.path[0] = '/';
		d->event.path.len = 1;
	}
	return s->result;
}

/* One event a token; tokens come back every second. Two CPUs may now and then
 * both take the last one, or both refill: an event more, never a verdict. */
static __always_inline bool within_budget(struct container *c, u64 now)
{
	u64 second = now / 1000000000ULL;
	u64 t = c->tokens;

	if (t >> 32 != (second & 0xffffffff)) {
		c->tokens = second << 32 | (event_budget - 1);
		return true;
	}
	if (!(t & 0xffffffff))
		return false;
	__sync_fetch_and_sub(&c->tokens, 1);
	return true;
}

/* Reports a judgement of the path in l->s. `how` is reason | kind << 8 |
 * op << 16 | denied << 24. */
__noinline int report(struct label *l, u32 how)
{
	struct container *c;
	struct desk *d;
	struct node *n = the_node();
	u64 now = bpf_ktime_get_boot_ns();
	u32 slot, len;
	u64 id;

	if (!l || !n)
		return 0;
	slot = l->slot;
	c = bpf_map_lookup_elem(&containers, &slot);
	if (!c)
		return 0;
	if (!within_budget(c, now)) {
		__sync_fetch_and_add(&c->muted, 1);
		return 0;
	}
	d = take_desk();
	if (!d) {
		__sync_fetch_and_add(&c->muted, 1);
		return 0;
	}
	d->event.id = __sync_fetch_and_add(&n->event_id, 1);
	d->event.time = now;
	d->event.instance = l->instance;
	d->event.table = l->table;
	id = bpf_get_current_pid_tgid();
	d->event.pid = id >> 32;
	d->event.tid = id;
	d->event.reason = how;
	d->event.access = how >> 8;
	d->event.op = how >> 16;
	d->event.denied = how >> 24;
	d->event.partial = spell(d, &l->s) != R_NONE || (u8)how == R_FOREIGN || (u8)how == R_LIMIT;
	d->event.programs_n = l->pending ? 0 : l->programs_n;
	d->event.inherited_n = l->inherited_n;
	bpf_get_current_comm(d->event.comm, sizeof(d->event.comm));
	__builtin_memcpy(d->event.programs, l->programs, sizeof(l->programs));
	__builtin_memcpy(d->event.inherited, l->inherited, sizeof(l->inherited));
	len = d->event.path.len;
	if (len > PATH_BYTES)
		len = PATH_BYTES;
	if (bpf_ringbuf_output(&events, &d->event, __builtin_offsetof(struct event, path.path) + len, 0)) {
		__sync_fetch_and_add(&n->lost, 1);
		__sync_fetch_and_add(&c->muted, 1);
	} else {
		__sync_fetch_and_add(&c->events, 1);
	}
	leave_desk(d);
	return 0;
}

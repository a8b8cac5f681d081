// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * trial.bpf.c: the automaton walk and the judgement alone, as a program that a
 * test can run on any kernel, one that refuses LSM programs included. Not part
 * of what is installed.
 */
#include "subject.h"

struct trial {
	u32 table;  /* cell of the header */
	u32 access; /* A_*; 0: run the program automaton, the answer is a mask */
	u32 len;
	u32 result; /* out: judge()'s answer */
	struct mask mask; /* in for paths, out for programs */
	u8 path[PATH_BYTES];
	u64 end;
};

#define TRIALS 256
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TRIALS);
	__type(key, u32);
	__type(value, struct trial);
} trials SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} bench SEC(".maps");

static long run_trial(u32 i, struct round *r)
{
	struct trial *one = bpf_map_lookup_elem(&trials, &i);
	struct scratch *s = r->s;
	struct state *st;
	struct table *t;
	u64 path;
	u32 w;

	if (!one)
		return 1;
	t = (struct table *)cell_at(one->table);
	if (!t)
		return 1;
	path = number_of(s, one->path);
	if (one->access) {
		run_bytes(s, path, one->len, t->paths);
		st = (struct state *)cell_at(s->state);
		one->result = st ? judge_row(&one->mask, st->out, one->access, t->words) : DENIED;
		return 0;
	}
	run_bytes(s, path, one->len, t->programs);
	st = (struct state *)cell_at(s->state);
	if (!st)
		return 1;
	for (w = 0; w < MASK_WORDS; w++)
		one->mask.word[w] = w < t->words ? word_at(st->out, w) : 0;
	return 0;
}

/* Runs the first n trials. */
SEC("syscall")
int run_trials(u32 *n)
{
	u32 zero = 0;
	struct round r = { .s = bpf_map_lookup_elem(&bench, &zero) };

	if (!r.s)
		return 1;
	return bpf_loop(*n, run_trial, &r, 0) != *n;
}

char LICENSE[] SEC("license") = "GPL";

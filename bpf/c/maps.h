/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * maps.h: every map. Go sets the sizes at load (bpf/load.go). All of them are
 * pinned; heap, bindings, containers and the programs outlive any daemon.
 */
#pragma once

#include "kernel.h"

struct cell {
	union {
		u64 word[CELL_WORDS];
		u32 half[2 * CELL_WORDS];
		u16 quarter[4 * CELL_WORDS];
		u8 byte[CELL_BYTES];
		struct table table;
		struct state state;
		struct edge edge;
		struct glob glob;
		struct row row;
	};
};

/* The tables: a heap of cells that only the daemon writes, before anybody
 * points at what it writes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cell);
} heap SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct container);
} containers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, struct binding);
} bindings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct label);
} labels SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, struct program);
} programs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, struct long_program);
} long_programs SEC(".maps");

/* Where a path is spelt out, for an event or for a program. A task claims one
 * with a compare-and-swap and gives it back before its hook returns. When all
 * are taken an exec is denied (limit) and an event is counted as muted. */
#define DESKS 64
struct desk {
	u64 taken;
	struct event event;
	u8 slack[NAME_BYTES + 1]; /* a name may be copied past the end of the path */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DESKS);
	__type(key, u32);
	__type(value, struct desk);
} desks SEC(".maps");

/* Labels that are given to other tasks are made up here first; one writer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct label);
} draft SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct node);
} node SEC(".maps");

/* Moves after any container's table was replaced: never twice the same number
 * while the node is up, whichever load of the kernel part counts. */
u64 reloads = 1;

/* Constants to the verifier, set by the loader. */
const volatile u32 event_budget = 100; /* events a second and container */

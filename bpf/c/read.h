/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * read.h: reads of kernel memory by address. Where the kernel has
 * bpf_rdonly_cast (6.2) they are plain loads with fault handling, about 9
 * instructions; before that a helper call. A bad address reads as 0.
 */
#pragma once

#include "maps.h"

extern void *bpf_rdonly_cast(const void *obj, u32 btf_id) __ksym __attribute__((weak));

#define HAVE_CAST bpf_core_enum_value_exists(enum special_kfunc_type, KF_bpf_rdonly_cast)
#define AS(type, at) ((type *)bpf_rdonly_cast((void *)(at), bpf_core_type_id_kernel(type)))

static __always_inline u64 probe64(u64 at)
{
	u64 v = 0;

	bpf_probe_read_kernel(&v, sizeof(v), (void *)at);
	return v;
}

static __always_inline u64 load64(u64 at)
{
	if (HAVE_CAST)
		return AS(struct timespec64, at)->tv_sec;
	return probe64(at);
}

static __always_inline u32 load32(u64 at)
{
	if (HAVE_CAST)
		return *(u32 *)AS(struct timespec64, at);
	return probe64(at);
}

#define OFFSET(type, field) \
	__builtin_preserve_field_info(((type *)0)->field, BPF_FIELD_BYTE_OFFSET)

/* A field of the structure at an address, as a plain number. */
#define GET64(at, type, field) load64((at) + OFFSET(type, field))
#define GET32(at, type, field) load32((at) + OFFSET(type, field))

/* The same, cheaper; the verifier takes what it gives for a pointer, if the field
 * is one: to be compared, stored, looked through, not computed with. */
#define PEEK(at, type, field) (HAVE_CAST ? (u64)AS(type, at)->field : probe64((at) + OFFSET(type, field)))

/* The same, cheaper still, of what the verifier takes for a pointer to that type:
 * what a PEEK gave. */
#define THROUGH(at, type, field) (HAVE_CAST ? (u64)((type *)(at))->field : probe64((at) + OFFSET(type, field)))

/* The same on a path that only kernels with the cast come to. */
#define FAST_THROUGH(at, type, field) ((u64)((type *)(at))->field)
#define FAST_PEEK(at, type, field) ((u64)AS(type, at)->field)

/* An address, for THROUGH. */
#define TYPED(type, at) (HAVE_CAST ? (u64)AS(type, at) : (u64)(at))

/* Reads and writes that happen once and in this order (x86-64 keeps it). */
#define ONCE(x) (*(volatile typeof(x) *)&(x))

/* A pointer as a plain number: through memory, where the verifier forgets what
 * it was. */
static __always_inline u64 number_of(struct scratch *s, const void *pointer)
{
	volatile u64 *slot = &s->name[0];

	*slot = (u64)pointer;
	return *slot;
}

/* The struct mount around a struct vfsmount. */
static __always_inline u64 mount_of(u64 vfsmount)
{
	return vfsmount - OFFSET(struct mount, mnt);
}

/* The 64-bit id of a mount namespace; 0 for a null or error pointer, which can't
 * be read. */
#define NAMESPACE_ID(at, LOOK)                                                                  \
	(bpf_core_field_exists(struct ns_common, ns_id) ? LOOK(at, struct mnt_namespace, ns.ns_id) \
							: LOOK(at, struct mnt_namespace, seq))

static __always_inline u64 namespace_id(u64 ns)
{
	return NAMESPACE_ID(ns, PEEK);
}

/* The mount namespace of the running task. */
static __always_inline u64 current_namespace(void)
{
	u64 proxy = PEEK(bpf_get_current_task(), struct task_struct, nsproxy);

	return proxy ? PEEK(proxy, struct nsproxy, mnt_ns) : 0;
}

static __always_inline bool in_exec(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return BPF_CORE_READ_BITFIELD(task, in_execve);
}

static __always_inline struct cell *cell_at(u32 index)
{
	return bpf_map_lookup_elem(&heap, &index);
}

/*
 * Loops of more than a few rounds are bpf_loop callbacks, so that the verifier
 * looks at their body once: unrolled, the walks alone would cost it a million
 * steps over all programs. What changes from round to round lives in the
 * scratch, not on the stack: verifiers before 6.7 take what they see in the
 * first round for constant.
 */
struct round {
	struct scratch *s;
	u64 a, b;
};

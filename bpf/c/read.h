/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * read.h: reads of kernel memory by address. Where the kernel has
 * bpf_rdonly_cast they are plain loads with fault handling (about 7
 * instructions); before 6.2 a helper call. Addresses are plain numbers here, so
 * that walks need no typed pointers; a bad address reads as 0.
 */
#pragma once

#include "maps.h"

extern void *bpf_rdonly_cast(const void *obj, u32 btf_id) __ksym __attribute__((weak));

static __always_inline u64 load64(u64 at)
{
	u64 v = 0;

	if (have_cast)
		return *(u64 *)bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct timespec64));
	bpf_probe_read_kernel(&v, sizeof(v), (void *)at);
	return v;
}

static __always_inline u32 load32(u64 at)
{
	u32 v = 0;

	if (have_cast)
		return *(u32 *)bpf_rdonly_cast((void *)at, bpf_core_type_id_kernel(struct timespec64));
	bpf_probe_read_kernel(&v, sizeof(v), (void *)at);
	return v;
}

#define OFFSET(type, field) \
	__builtin_preserve_field_info(((type *)0)->field, BPF_FIELD_BYTE_OFFSET)
#define GET64(at, type, field) load64((at) + OFFSET(type, field))
#define GET32(at, type, field) load32((at) + OFFSET(type, field))

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

/* The 64-bit id of a mount namespace; 0 for a null or error pointer. */
static __always_inline u64 namespace_id(u64 ns)
{
	if (ns == 0 || ns >= (u64)-4095)
		return 0;
	if (bpf_core_field_exists(struct ns_common, ns_id))
		return GET64(ns, struct mnt_namespace, ns.ns_id);
	return GET64(ns, struct mnt_namespace, seq);
}

/* The mount namespace of the running task. */
static __always_inline u64 current_namespace(void)
{
	u64 task = bpf_get_current_task();
	u64 proxy = GET64(task, struct task_struct, nsproxy);

	return proxy ? GET64(proxy, struct nsproxy, mnt_ns) : 0;
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

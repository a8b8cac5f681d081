/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * kernel.h: the few kernel types and fields that are read, relocated by CO-RE
 * at load. Fields that only some kernels have are declared here all the same
 * and tested with bpf_core_field_exists.
 */
#pragma once

#include "abi.h"

#define __ksym __attribute__((section(".ksyms")))
typedef _Bool bool;
#define false 0
#define true 1
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef u8 __u8;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef u16 umode_t;

enum bpf_map_type_ {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
#define BPF_F_NO_PREALLOC 1
#define BPF_F_MMAPABLE (1U << 10)
#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct qstr {
	u32 hash;
	u32 len;
	const unsigned char *name;
};

struct list_head {
	struct list_head *next;
};

struct mount;
struct super_block {
	unsigned long s_flags;
	unsigned long s_magic;
	struct list_head s_mounts; /* up to 6.16 */
};

struct super_block___chain { /* from 6.17 */
	struct mount *s_mounts;
};

typedef struct {
	s64 counter;
} atomic_long_t;

struct rw_semaphore {
	atomic_long_t count; /* not in real-time kernels */
};

struct inode {
	umode_t i_mode;
	u32 i_flags;
	unsigned long i_ino;
	struct super_block *i_sb;
	struct rw_semaphore i_rwsem;
	void *i_private;
};

typedef struct {
	u32 sequence;
} seqcount_t;

typedef struct {
	seqcount_t seqcount;
} seqcount_spinlock_t;

struct dentry {
	u32 d_flags;
	seqcount_spinlock_t d_seq;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
	unsigned char d_iname[16]; /* and more: short names are kept here */
};

union shortname_store {
	unsigned char string[16];
};

struct dentry___short { /* from 6.15 */
	union shortname_store d_shortname;
};

struct vfsmount {
	struct dentry *mnt_root;
	struct super_block *mnt_sb;
};

struct ns_common {
	u64 ns_id; /* from 6.18 */
	u32 inum;
};

struct mnt_namespace {
	struct ns_common ns;
	u64 seq; /* up to 6.17 */
	u64 event; /* moves with every change of the mounts */
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	struct mnt_namespace *mnt_ns;
	struct list_head mnt_instance;	/* up to 6.16 */
	struct mount *mnt_next_for_sb;	/* from 6.17 */
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	u32 f_flags;
	u32 f_mode;
	struct inode *f_inode;
	struct path f_path;
};

struct backing_file { /* from 6.7 */
	struct file file;
	struct path user_path;
};

struct nsproxy {
	struct mnt_namespace *mnt_ns;
};

struct bpf_local_storage;
struct mm_struct;
struct fdtable {
	u32 max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
};

struct task_struct {
	struct bpf_local_storage *bpf_storage;
	struct nsproxy *nsproxy;
	struct files_struct *files;
	struct mm_struct *mm;
	int pid;
	int tgid;
	u32 flags;
	unsigned in_execve : 1;
};

struct mm_struct {
	struct file *exe_file;
};

struct vm_area_struct {
	unsigned long vm_flags;
	struct file *vm_file;
};

struct linux_binprm {
	struct file *file;
};

struct iattr {
	u32 ia_valid;
};

enum special_kfunc_type { KF_bpf_rdonly_cast = 8 }; /* from 6.2 */

struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

/* Any structure whose first member is eight bytes of plain data: read.h reads
 * kernel memory through it. */
struct timespec64 {
	s64 tv_sec;
	long tv_nsec;
};

#pragma clang attribute pop

/* Constants of the kernel that are not in BTF; stable since the versions given. */
#define FMODE_EXEC_FLAG 0x20		/* __FMODE_EXEC in f_flags, include/linux/fs.h */
#define SB_KERNMOUNT (1U << 22)		/* a mount that the kernel made for itself, include/linux/fs.h */
#define O_ACCMODE 3
#define O_WRONLY 1
#define O_RDWR 2
#define O_TRUNC 01000
#define O_TMPFILE_BIT 020000000
#define MNT_NS_INTERNAL ((u64)-22)	/* ERR_PTR(-EINVAL), fs/mount.h */
#define DCACHE_OP_COMPARE 0x2		/* include/linux/dcache.h; the bit is the same 5.10 to 7.3 */
#define DCACHE_OP_REVALIDATE 0x4	/* include/linux/dcache.h; the bit is the same 5.10 to 7.3 */
#define RWSEM_WRITER_LOCKED 1		/* kernel/locking/rwsem.c */
#define DEBUGFS_MAGIC 0x64626720
#define TRACEFS_MAGIC 0x74726163
#define S_CASEFOLD (1 << 15)		/* inode flag, include/linux/fs.h */
#define PROC_SUPER_MAGIC 0x9fa0
#define EXT4_SUPER_MAGIC 0xef53
#define F2FS_SUPER_MAGIC 0xf2f52010
#define TMPFS_MAGIC 0x01021994
#define BPF_FS_MAGIC 0xcafe4a11
#define S_IFMT 0170000
#define S_IFDIR 0040000
#define S_IFREG 0100000
#define BTRFS_SUPER_MAGIC 0x9123683e
#define PROT_EXEC 4
#define VM_EXEC 4
#define PTRACE_MODE_ATTACH 2
#define ATTR_OTHERS 0x800f	/* ATTR_MODE, UID, GID, SIZE, OPEN: judged by other hooks, include/linux/fs.h */
#define ATTR_TIMES 0x30		/* ATTR_ATIME, ATTR_MTIME */
#define RENAME_EXCHANGE 2
#define RENAME_WHITEOUT 4
#define EPERM 1
#define ENOMEM 12
#define EACCES 13

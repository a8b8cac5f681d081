/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * hooks_file.h: handles: open, truncate, receive, map executable.
 */
#pragma once

#include "decide.h"

/* O_RDONLY, O_WRONLY, O_RDWR, and 3, which asks for both: A_READ and A_MODIFY. */
#define BY_MODE 0x3321

static __always_inline u32 open_access(u32 flags)
{
	if (!(flags & (O_ACCMODE | O_TRUNC | O_TMPFILE_BIT | FMODE_EXEC_FLAG)))
		return A_READ; /* nearly all */
	if (flags & FMODE_EXEC_FLAG)
		return A_EXEC;
	_Static_assert(A_READ == 1 && A_MODIFY == 2 && A_CREATE == 4, "the bits of BY_MODE and of the shifts below");
	return ((BY_MODE >> (4 * (flags & O_ACCMODE))) & 3) | (flags & O_TRUNC) / (O_TRUNC / A_MODIFY) |
	       (flags & O_TMPFILE_BIT) / (O_TMPFILE_BIT / A_CREATE);
}

/* file_open beyond the hit path. */
static __always_inline int open_slowly(struct label *l, u32 flags, u32 row)
{
	u32 access = open_access(flags);

	if (!l->instance || (l->pending && (!(flags & FMODE_EXEC_FLAG) || !in_exec())))
		return 0;
	if (!row)
		row = known_row(l);
	if (row == OF_LAYER || (row && remembers(l, row, access)))
		return 0;
	return decide(l, access == A_EXEC ? OP_EXEC : OP_OPEN, access, row);
}

/* The hit path comes first: most opens go no further. What it answers needs no
 * look at the label's instance: a label that is none, or pending, is never up
 * to date. Where reads are calls (before 6.2) one more is little. */
SEC("lsm/file_open")
int BPF_PROG(file_open, struct file *file)
{
	struct label *l = stored_label();
	u32 row = 0;

	if (!l || inner_open(file))
		return 0;
	if (HAVE_CAST && l->reloads == ONCE(reloads)) {
		row = cached(l, mount_of((u64)file->f_path.mnt), (u64)file->f_path.dentry, true);
		if (row == OF_LAYER || (row && remembers(l, row, open_access(file->f_flags))))
			return 0;
	}
	aim(&l->s, file->f_path.mnt, file->f_path.dentry);
	return ANSWER(open_slowly(l, file->f_flags, row), EACCES);
}

SEC("lsm/path_truncate")
int BPF_PROG(path_truncate, struct path *path, int ret)
{
	struct label *l = own_label();

	if (ret || !l)
		return ret;
	return on_path(l, OP_TRUNCATE, A_MODIFY, path->mnt, path->dentry);
}

/* From 6.2; before it ftruncate comes to path_truncate. */
SEC("lsm/file_truncate")
int BPF_PROG(file_truncate, struct file *file, int ret)
{
	struct label *l = own_label();

	if (ret || !l)
		return ret;
	return on_file(l, OP_TRUNCATE, A_MODIFY, file);
}

SEC("lsm/file_receive")
int BPF_PROG(file_receive, struct file *file, int ret)
{
	struct label *l = own_label();
	u32 access;

	if (ret || !l)
		return ret;
	access = file->f_mode & 3; /* FMODE_READ, FMODE_WRITE: the same bits as A_READ, A_MODIFY */
	if (!access)
		return 0;
	return on_file(l, OP_RECEIVE, access, file);
}

/* The mappings that the kernel makes inside execve belong to the exec that was
 * judged already. */
SEC("lsm/mmap_file")
int BPF_PROG(mmap_file, struct file *file, unsigned long reqprot, unsigned long prot, unsigned long flags,
	     int ret)
{
	struct label *l;

	if (ret || !file || !(prot & PROT_EXEC))
		return ret;
	l = own_label();
	if (!l || in_exec())
		return 0;
	return on_mapping(l, file);
}

SEC("lsm/file_mprotect")
int BPF_PROG(file_mprotect, struct vm_area_struct *vma, unsigned long reqprot, unsigned long prot, int ret)
{
	struct label *l;
	struct file *file;

	if (ret || !(prot & PROT_EXEC))
		return ret;
	l = own_label();
	if (!l || in_exec())
		return 0;
	file = vma->vm_file;
	if (!file || vma->vm_flags & VM_EXEC)
		return 0;
	return on_mapping(l, file);
}

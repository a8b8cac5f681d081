/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * hooks_file.h: handles: open, truncate, receive, map executable.
 */
#pragma once

#include "decide.h"

static __always_inline u32 open_access(u32 flags)
{
	u32 access = 0;

	if (flags & FMODE_EXEC_FLAG)
		return A_EXEC;
	switch (flags & O_ACCMODE) {
	case 0:
		access = A_READ;
		break;
	case O_WRONLY:
		access = A_MODIFY;
		break;
	default: /* O_RDWR, and 3: both are asked for */
		access = A_READ | A_MODIFY;
	}
	if (flags & O_TRUNC)
		access |= A_MODIFY;
	if (flags & O_TMPFILE_BIT)
		access |= A_CREATE;
	return access;
}

SEC("lsm/file_open")
int BPF_PROG(file_open, struct file *file, int ret)
{
	struct label *l = any_label();
	u32 flags;

	if (ret || !l || inner_open(file))
		return ret;
	flags = file->f_flags;
	if (l->pending && (!(flags & FMODE_EXEC_FLAG) || !in_exec()))
		return 0;
	return on_file(l, flags & FMODE_EXEC_FLAG ? OP_EXEC : OP_OPEN, open_access(flags), file);
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
	return on_file(l, OP_MMAP, A_EXEC, file);
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
	return on_file(l, OP_MMAP, A_EXEC, file);
}

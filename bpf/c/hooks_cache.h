/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * hooks_cache.h: what moves the cache's epochs. Attached before any program
 * that fills the cache; they deny nothing.
 */
#pragma once

#include "decide.h"

/* Anybody's rename or exchange of a directory, overlayfs' own included, while
 * both parents are locked and before anything has moved. */
#if BROKEN(M_FEXIT_EPOCH)
SEC("fexit/d_move")
int BPF_PROG(count_rename, struct dentry *old, struct dentry *new)
#else
SEC("lsm/inode_rename")
int BPF_PROG(count_rename, struct inode *old_dir, struct dentry *old, struct inode *new_dir, struct dentry *new)
#endif
{
	if (is_directory(old) || is_directory(new))
		__sync_fetch_and_add(&epochs.renames, 1);
	return 0;
}

/* An inode is about to be freed, and its memory and number to be reused. */
SEC("lsm/inode_free_security")
int BPF_PROG(count_free, struct inode *inode)
{
	u64 at = 0;

	if ((inode->i_mode & S_IFMT) != S_IFDIR)
		return 0;
	bpf_probe_read_kernel(&at, sizeof(at), &inode); /* a plain number */
	__sync_fetch_and_add(stripe(mixed(at)), 1);
	return 0;
}

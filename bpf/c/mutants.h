/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * mutants.h: the ways in which tests break the kernel part on purpose, to see
 * that they notice: compiled with -DMUTANT=M_…, one at a time (test/mutants).
 * What is installed has none of them: BROKEN() is a constant false there.
 */
#pragma once

#define M_NONE 0
#define M_NO_MOUNT_EVENT 1  /* the cache does not see mounts change */
#define M_NO_RENAME_EPOCH 2 /* … directories move */
#define M_NO_FREED_EPOCH 3  /* … directories' inodes being reused */
#define M_FEXIT_EPOCH 4	    /* … moves that fexit misses */
#define M_NO_LOCK_CHECK 5   /* the cache stores a walk past a directory about to move */
#define M_NO_DSEQ 6	    /* parent and name are read apart */
#define M_KEY_BY_NUMBER 7   /* inodes are told apart by their number alone */

#ifndef MUTANT
#define MUTANT M_NONE
#endif
#define BROKEN(which) (MUTANT == (which))

// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * dunnage.bpf.c: the kernel part, one object. Read in this order:
 *
 *   abi.h          what is shared with Go: sizes, numbers, records
 *   kernel.h       the kernel's own types, as far as they are read
 *   maps.h         every map
 *   read.h         kernel memory by address
 *   step.h         one step of an automaton on one name
 *   walk.h         (mount, dentry) -> state
 *   judge.h        state, mask -> verdict; gain by link and rename
 *   cache.h        where directories lead, remembered
 *   report.h       events
 *   subject.h      programs, interned; masks derived from them
 *   decide.h       the one function that decides
 *   hooks_*.h      fill in a request, return the decision
 *   tasks.h        iterators and small programs that the daemon runs
 *
 * Only LSM programs and the kernel's own counters carry safety. fentry and
 * fexit programs are skipped when the same one is active on the CPU, so none is
 * used.
 */
#include "hooks_file.h"
#include "hooks_name.h"
#include "hooks_attr.h"
#include "hooks_exec.h"
#include "hooks_guard.h"
#include "hooks_cache.h"
#include "tasks.h"

char LICENSE[] SEC("license") = "GPL";

package bpf

import (
	"fmt"

	"github.com/cilium/ebpf/btf"

	"github.com/dunnage-project/dunnage/policy"
)

// Gap is something that a policy can ask for and that is not judged on this
// kernel.
type Gap struct {
	Need   policy.Need // Pos is empty
	Detail string
	Remedy string
}

// coverage is the hooks that judge what a policy can ask for. A hook that has no
// program, or that the kernel lacks, leaves a gap.
var coverage = [...]struct {
	lsm  string
	need policy.Need
	what string
}{
	{"file_open", access(policy.Read, policy.Modify, policy.Exec), "opening files"},
	{"file_receive", access(policy.Read, policy.Modify), "files that are passed in"},
	{"path_truncate", access(policy.Modify), "truncate"},
	{"file_truncate", access(policy.Modify), "ftruncate"},
	{"path_mkdir", access(policy.Create), "mkdir"},
	{"path_mknod", access(policy.Create), "new files and nodes"},
	{"path_symlink", access(policy.Create), "symlink"},
	{"path_link", access(policy.Create), "link"},
	{"path_rename", access(policy.Create, policy.Delete), "rename"},
	{"path_unlink", access(policy.Delete), "unlink"},
	{"path_rmdir", access(policy.Delete), "rmdir"},
	{"path_chmod", access(policy.Attr), "mode"},
	{"path_chown", access(policy.Attr), "owner"},
	{"inode_setxattr", access(policy.Attr), "extended attributes"},
	{"inode_removexattr", access(policy.Attr), "removing extended attributes"},
	{"inode_setattr", access(policy.Attr), "times"},
	{"bprm_check_security", access(policy.Exec), "execve"},
	{"mmap_file", access(policy.Exec), "mapping as executable"},
	{"file_mprotect", access(policy.Exec), "making mappings executable"},
	{"sb_mount", policy.Need{Mounts: true}, "mount"},
	{"move_mount", policy.Need{Mounts: true}, "move_mount"},
	{"sb_umount", policy.Need{Mounts: true}, "umount"},
	{"sb_remount", policy.Need{Mounts: true}, "remount"},
	{"sb_pivotroot", policy.Need{Mounts: true}, "pivot_root"},
	{"bprm_check_security", policy.Need{MemfdExec: true}, "executing files without a path"},
}

func access(kinds ...policy.Kind) (n policy.Need) {
	for _, k := range kinds {
		n.Access |= 1 << k
	}
	return n
}

// Gaps is what this kernel would leave unjudged, found without loading anything.
func Gaps() []Gap {
	everything := policy.Need{Access: policy.AllAccess, Mounts: true, MemfdExec: true}
	for _, f := range []Finding{probeLSM(), probeBTF()} {
		if !f.OK {
			return []Gap{{everything, fmt.Sprintf("no policy is enforced: %s: %s", f.Name, f.Detail), f.Remedy}}
		}
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return []Gap{{everything, "no policy is enforced: " + err.Error(), "see `dunnage check`"}}
	}
	return gaps(func(lsm string) bool { return hasFunc(kernel, "bpf_lsm_"+lsm) })
}

// gaps is Gaps for a kernel that has the hooks for which has says so.
func gaps(has func(lsm string) bool) []Gap {
	known := map[string]hook{}
	for _, h := range hooks {
		known[h.lsm] = h
	}
	var out []Gap
	for _, c := range coverage {
		switch h, ok := known[c.lsm]; {
		case !ok:
			out = append(out, Gap{c.need, c.what + ": not judged by this version", "rely on other kinds of access where that matters"})
		case !has(c.lsm) && h.optional == "":
			out = append(out, Gap{c.need, fmt.Sprintf("%s: the kernel has no LSM hook %s", c.what, c.lsm), "run a kernel that has it, with CONFIG_SECURITY_PATH; the daemon does not start on this one"})
		}
	}
	return out
}

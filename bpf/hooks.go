package bpf

// hook is one LSM program: its name in the object and at the kernel, and what
// follows if the kernel lacks it.
type hook struct {
	program string
	lsm     string
	// optional: kernels without it are complete all the same, because…
	optional string
	// cache: only the cache needs it; without it there is none.
	cache bool
	// args: this program is for kernels where the hook has so many; 0: any.
	args int
}

// hooks lists every LSM program, in the order in which they are attached: what
// invalidates the cache comes before what fills it. `dunnage check` prints it.
var hooks = [...]hook{
	{program: kernelProgCountRename, lsm: "inode_rename", cache: true},
	{program: kernelProgCountFree, lsm: "inode_free_security", cache: true},
	{program: kernelProgBprmCreds, lsm: "bprm_creds_for_exec"},
	{program: kernelProgBprmCheck, lsm: "bprm_check_security"},
	{program: kernelProgBprmCommit, lsm: "bprm_committed_creds"},
	{program: kernelProgTaskAlloc, lsm: "task_alloc"},
	{program: kernelProgFileOpen, lsm: "file_open"},
	{program: kernelProgPathTruncate, lsm: "path_truncate"},
	{program: kernelProgFileTruncate, lsm: "file_truncate", optional: "before 6.2 ftruncate comes to path_truncate"},
	{program: kernelProgFileReceive, lsm: "file_receive"},
	{program: kernelProgMmapFile, lsm: "mmap_file"},
	{program: kernelProgFileMprotect, lsm: "file_mprotect"},
	{program: kernelProgPathMkdir, lsm: "path_mkdir"},
	{program: kernelProgPathMknod, lsm: "path_mknod"},
	{program: kernelProgPathSymlink, lsm: "path_symlink"},
	{program: kernelProgPathUnlink, lsm: "path_unlink"},
	{program: kernelProgPathRmdir, lsm: "path_rmdir"},
	{program: kernelProgPathLink, lsm: "path_link"},
	{program: kernelProgPathRename, lsm: "path_rename"},
	{program: kernelProgPathChmod, lsm: "path_chmod"},
	{program: kernelProgPathChown, lsm: "path_chown"},
	{program: kernelProgSetxattr, lsm: "inode_setxattr"},
	{program: kernelProgRemovexattr, lsm: "inode_removexattr"},
	{program: kernelProgSetAcl, lsm: "inode_set_acl", optional: "before 6.2 ACLs come as extended attributes"},
	{program: kernelProgRemoveAcl, lsm: "inode_remove_acl", optional: "before 6.2 ACLs come as extended attributes"},
	{program: kernelProgSetattrEarly, lsm: "inode_setattr", args: 2},
	{program: kernelProgSetattr, lsm: "inode_setattr", args: 3},
	{program: kernelProgFileSetattr, lsm: "inode_file_setattr", optional: "before 6.17 there is no file_setattr(2)"},
	{program: kernelProgFileIoctl, lsm: "file_ioctl"},
	{program: kernelProgIoctlCompat, lsm: "file_ioctl_compat", optional: "before 6.8 requests of 32-bit programs come to file_ioctl"},
	{program: kernelProgSbMount, lsm: "sb_mount"},
	{program: kernelProgSbUmount, lsm: "sb_umount"},
	{program: kernelProgSbRemount, lsm: "sb_remount"},
	{program: kernelProgSbPivotroot, lsm: "sb_pivotroot"},
	{program: kernelProgMoveMount, lsm: "move_mount"},
	{program: kernelProgPtraceCheck, lsm: "ptrace_access_check"},
	{program: kernelProgPtraceTraceme, lsm: "ptrace_traceme"},
	{program: kernelProgGuardBpf, lsm: "bpf"},
}

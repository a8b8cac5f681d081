package bpf

// hook is one LSM program: its name in the object and at the kernel, and what
// follows if the kernel lacks it.
type hook struct {
	program string
	lsm     string
	// optional: kernels without it are complete all the same, because…
	optional string
}

// hooks lists every LSM program. `dunnage check` prints it.
var hooks = [...]hook{
	{kernelProgBprmCreds, "bprm_creds_for_exec", ""},
	{kernelProgBprmCheck, "bprm_check_security", ""},
	{kernelProgBprmCommit, "bprm_committed_creds", ""},
	{kernelProgTaskAlloc, "task_alloc", ""},
	{kernelProgFileOpen, "file_open", ""},
	{kernelProgPathTruncate, "path_truncate", ""},
	{kernelProgFileTruncate, "file_truncate", "before 6.2 ftruncate comes to path_truncate"},
	{kernelProgFileReceive, "file_receive", ""},
	{kernelProgMmapFile, "mmap_file", ""},
	{kernelProgFileMprotect, "file_mprotect", ""},
	{kernelProgPathMkdir, "path_mkdir", ""},
	{kernelProgPathMknod, "path_mknod", ""},
	{kernelProgPathSymlink, "path_symlink", ""},
	{kernelProgPathUnlink, "path_unlink", ""},
	{kernelProgPathRmdir, "path_rmdir", ""},
	{kernelProgPathLink, "path_link", ""},
	{kernelProgPathRename, "path_rename", ""},
	{kernelProgPathChmod, "path_chmod", ""},
	{kernelProgPathChown, "path_chown", ""},
	{kernelProgSbMount, "sb_mount", ""},
	{kernelProgSbUmount, "sb_umount", ""},
	{kernelProgSbRemount, "sb_remount", ""},
	{kernelProgSbPivotroot, "sb_pivotroot", ""},
	{kernelProgMoveMount, "move_mount", ""},
	{kernelProgPtraceCheck, "ptrace_access_check", ""},
	{kernelProgPtraceTraceme, "ptrace_traceme", ""},
	{kernelProgGuardBpf, "bpf", ""},
}

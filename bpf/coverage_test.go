package bpf

import (
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
)

// A kernel without a hook leaves the gap that a policy must hear of; one without
// an optional hook leaves none; every kind of access has a hook.
func TestGaps(t *testing.T) {
	all := gaps(func(string) bool { return true })
	find := func(out []Gap, lsm string) *Gap {
		for i := range out {
			if strings.HasSuffix(out[i].Detail, "LSM hook "+lsm) {
				return &out[i]
			}
		}
		return nil
	}
	without := func(lsm string) []Gap { return gaps(func(name string) bool { return name != lsm }) }
	if g := find(without("path_rename"), "path_rename"); g == nil || g.Need.Access != 1<<policy.Create|1<<policy.Delete || g.Remedy == "" {
		t.Errorf("without path_rename: %+v", g)
	}
	if g := find(without("sb_umount"), "sb_umount"); g == nil || !g.Need.Mounts || g.Need.Access != 0 {
		t.Errorf("without sb_umount: %+v", g)
	}
	if out := without("file_truncate"); len(out) != len(all) {
		t.Errorf("without file_truncate, which older kernels lack: %+v", out)
	}
	for _, g := range all {
		if g.Need.Access&^(1<<policy.Attr) != 0 || g.Need.Mounts || g.Need.MemfdExec {
			t.Errorf("a complete kernel has a gap that is not about attributes: %+v", g)
		}
	}
	var judged policy.AccessSet
	for _, c := range coverage {
		judged |= c.need.Access
	}
	if judged != policy.AllAccess {
		t.Errorf("no hook is named for %s", policy.AllAccess&^judged)
	}
	if Gaps() == nil && all != nil {
		t.Error("this kernel has fewer gaps than a complete one")
	}
}

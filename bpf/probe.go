package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Finding is one line of `dunnage check`.
type Finding struct {
	Name   string
	OK     bool
	Detail string
	Remedy string // empty if OK
}

// Probe says whether this host can enforce, by trying: it loads and attaches
// every program without pinning anything, for a moment, with nobody bound.
func Probe() []Finding {
	out := []Finding{probeRelease(), probeRoot(), probeLSM(), probeBTF(), probeFS()}
	for _, f := range out {
		if !f.OK {
			return out // the trial would only repeat it
		}
	}
	if f := probePreempt(); !f.OK {
		out = append(out, f)
	}
	return append(out, probePrograms()...)
}

func probeRelease() Finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Finding{Name: "kernel", Detail: err.Error()}
	}
	return Finding{Name: "kernel", OK: true, Detail: unix.ByteSliceToString(u.Release[:])}
}

func probeRoot() Finding {
	if os.Geteuid() != 0 {
		return Finding{Name: "root", Detail: "not root", Remedy: "run it as root"}
	}
	return Finding{Name: "root", OK: true, Detail: "yes"}
}

func probeLSM() Finding {
	f := Finding{Name: "bpf LSM"}
	b, err := os.ReadFile("/sys/kernel/security/lsm")
	if err != nil {
		f.Detail = err.Error()
		f.Remedy = "mount securityfs at /sys/kernel/security, and run a kernel with CONFIG_BPF_LSM"
		return f
	}
	f.Detail = string(b)
	for _, name := range strings.Split(strings.TrimSpace(string(b)), ",") {
		f.OK = f.OK || name == "bpf"
	}
	if !f.OK {
		f.Remedy = fmt.Sprintf("add it to the kernel command line: lsm=%s,bpf", strings.TrimSpace(string(b)))
	}
	return f
}

func probeBTF() Finding {
	if _, err := btf.LoadKernelSpec(); err != nil {
		return Finding{Name: "BTF", Detail: err.Error(), Remedy: "run a kernel with CONFIG_DEBUG_INFO_BTF"}
	}
	return Finding{Name: "BTF", OK: true, Detail: "yes"}
}

func probeFS() Finding {
	var st unix.Statfs_t
	if err := unix.Statfs("/sys/fs/bpf", &st); err != nil || st.Type != unix.BPF_FS_MAGIC {
		return Finding{Name: "bpf file system", Detail: "none at /sys/fs/bpf", Remedy: "mount -t bpf bpf /sys/fs/bpf"}
	}
	return Finding{Name: "bpf file system", OK: true, Detail: "/sys/fs/bpf"}
}

// probePreempt refuses full preemption before 6.2: there a look-up of a task's
// label fails when it was preempted inside another one on the same CPU
// (measured on 6.1: 4,370 of 338,714).
func probePreempt() Finding {
	f := Finding{Name: "preemption", OK: true, Detail: "fine"}
	kernel, err := btf.LoadKernelSpec()
	if err != nil || hasFunc(kernel, "bpf_rdonly_cast") { // came with 6.2, as the repair did
		return f
	}
	mode, _ := os.ReadFile("/sys/kernel/debug/sched/preempt")
	line, _ := os.ReadFile("/proc/cmdline")
	if bytes.Contains(mode, []byte("(full)")) || bytes.Contains(line, []byte("preempt=full")) {
		f.OK = false
		f.Detail = "full preemption on a kernel before 6.2: label look-ups can fail"
		f.Remedy = "boot with preempt=voluntary, or run 6.2 or later"
	}
	return f
}

func probePrograms() []Finding {
	spec, cacheOff, err := loadSpec(Options{TableBytes: 4096, Containers: 1, Programs: 16, EventBytes: os.Getpagesize()}.withDefaults())
	if err != nil {
		return []Finding{{Name: "programs", Detail: err.Error(), Remedy: "run a kernel from 6.1 on"}}
	}
	for _, m := range spec.Maps {
		m.Pinning = ebpf.PinNone
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return []Finding{{Name: "programs", Detail: explainLoad(err).Error(), Remedy: "see the message"}}
	}
	defer coll.Close()
	var out []Finding
	if cacheOff != "" {
		out = append(out, Finding{Name: "cache", OK: true, Detail: "off, every path is walked: " + cacheOff})
	}
	for _, h := range hooks {
		f := Finding{Name: "hook " + h.lsm}
		p := coll.Programs[h.program]
		if p == nil && h.args != 0 {
			continue // another program is for this kernel's form of the hook
		}
		if p == nil {
			f.OK, f.Detail = true, "not there: "+h.optional
			if h.cache {
				f.Detail = "not there: there is no cache"
			}
			out = append(out, f)
			continue
		}
		l, err := link.AttachLSM(link.LSMOptions{Program: p})
		if err == nil {
			f.OK, f.Detail = true, "attaches"
			err = l.Close()
		}
		if err != nil {
			f.OK, f.Detail, f.Remedy = false, err.Error(), "no policy can be enforced without it"
			if errors.Is(err, unix.EBUSY) {
				f.Remedy = "another tool patches this hook; stop it"
			}
		}
		out = append(out, f)
	}
	return out
}

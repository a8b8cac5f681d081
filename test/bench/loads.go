package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/policy"
)

// Load is what one workload costs without and with a policy.
type Load struct {
	Name   string  `json:"name"`
	Off    float64 `json:"off"`    // instructions, in millions, nothing of ours in the kernel
	Cached float64 `json:"cached"` // with a policy
	Walked float64 `json:"walked"` // with a policy, without the cache
	// Of what was judged with the cache.
	Hits    uint64            `json:"hits"` // in bundles of 64 a task: the rest is lost
	Fills   uint64            `json:"fills"`
	Refused map[string]uint64 `json:"refused"`
	HitRate float64           `json:"hitRate"` // hits of hits, fills and refusals
}

// loadsRoot is the root of the container: an overlay, as containers have, whose
// lower layer is the demo's PostgreSQL image.
const loadsRoot = "/run/loads/root"

// system is the policy of the workloads: what a container needs, a directory
// that only one program may use, and one that nobody may.
var system = []string{
	allow("read, exec", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/bench"),
	allow("read", "/etc", "/proc", "/sys"),
	allow("read, write", "/dev", "/tmp", "/run", "/var/run"),
	allow("read, write, exec", "/work"),
	"  - {effect: only, paths: [\"/var/lib/postgresql\"], access: [read, write], executables: [\"/usr/lib/postgresql/*/bin/*\", \"/bench\"]}\n",
	"  - {effect: deny, paths: [\"/etc/shadow\"], access: [read, write]}\n",
}

// loads runs the workloads named, or all.
func loads(names []string) ([]Load, error) {
	if len(names) == 0 {
		names = []string{"one file", "new files", "hardlink farm", "git status", "grep -r", "C build", "pgbench", "renames beside"}
	}
	if err := makeLoadsRoot(); err != nil {
		return nil, err
	}
	if err := makeWork(loadsRoot); err != nil {
		return nil, err
	}
	if slices.Contains(names, "git status") {
		if err := makeRepository(); err != nil {
			return nil, err
		}
	}
	out := make([]Load, len(names))
	for i, name := range names {
		out[i].Name = name
		if _, err := runLoad(name, nil); err != nil { // the first brings files into memory
			return nil, err
		}
		off, err := runLoad(name, nil)
		if err != nil {
			return nil, err
		}
		out[i].Off = off
		fmt.Fprintf(os.Stderr, "%-16s off %12.3f\n", name, off)
	}
	a, err := compile("enforce", "deny", system)
	if err != nil {
		return nil, err
	}
	for _, cache := range []bool{true, false} {
		err := with(bpf.Options{NoCache: !cache}, func(e *bpf.Engine) error {
			for i := range out {
				if err := confinedLoad(e, a, &out[i], cache); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// confinedLoad runs a workload under the policy and notes what it took.
func confinedLoad(e *bpf.Engine, a *policy.Automaton, l *Load, cache bool) error {
	var instance bpf.Instance
	cost, err := runLoad(l.Name, func(p *process) (err error) {
		instance, _, err = confine(e, p, a)
		return err
	})
	if err != nil {
		return err
	}
	if !cache {
		l.Walked = cost
		fmt.Fprintf(os.Stderr, "%-16s walked %12.3f (%+.2f %%)\n", l.Name, cost, 100*(cost/l.Off-1))
		return nil
	}
	c, err := e.CacheCounts(instance)
	if err != nil {
		return err
	}
	l.Cached, l.Hits, l.Fills, l.Refused = cost, c.Hit, c.Fill, c.Refused
	all := c.Hit + c.Fill
	for _, n := range c.Refused {
		all += n
	}
	l.HitRate = float64(c.Hit) / float64(max(all, 1))
	fmt.Fprintf(os.Stderr, "%-16s cached %12.3f (%+.2f %%), hit rate %.4f, %+v\n", l.Name, cost, 100*(cost/l.Off-1), l.HitRate, c)
	return nil
}

// runLoad runs a workload in a new container and returns its millions of
// instructions.
func runLoad(name string, prepare func(*process) error) (cost float64, err error) {
	p, err := startChild(loadsRoot, false)
	if err != nil {
		return 0, err
	}
	if prepare != nil {
		if err := prepare(p); err != nil {
			return 0, err
		}
	}
	o := orders{Argv: []string{"/bench", "work", name}}
	if name == "pgbench" { // its server refuses to be root
		postgres, err := ownerOf(loadsRoot + pgData)
		if err != nil {
			return 0, err
		}
		o.User = postgres
	}
	if name == "renames beside" {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() { done <- renames(ctx) }()
		defer func() {
			cancel()
			err = errors.Join(err, <-done)
		}()
	}
	data, err := p.run(o)
	if err != nil {
		return 0, err
	}
	var ns int64
	if err := json.Unmarshal(data, &ns); err != nil {
		return 0, fmt.Errorf("%w: %s", err, data)
	}
	return float64(ns) / 1e6, nil
}

// renames renames a directory every 100 µs, 10,000 times a second, as a thread
// that is never kept waiting, and says how often it did.
func renames(ctx context.Context) error {
	runtime.LockOSThread() // and never unlocked: the thread ends with its priority
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return err
	}
	top, err := os.MkdirTemp("/run/loads", "renames-")
	if err != nil {
		return err
	}
	a, b := top+"/a", top+"/b"
	if err := os.Mkdir(a, 0o755); err != nil {
		return err
	}
	n := 0
	for ; ctx.Err() == nil; n++ {
		if err := os.Rename(a, b); err != nil {
			return err
		}
		a, b = b, a
		// The runtime's own sleep is good to a millisecond only.
		if err := unix.Nanosleep(&unix.Timespec{Nsec: 100_000}, nil); err != nil && err != unix.EINTR {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "renamed %d times\n", n)
	return nil
}

// makeLoadsRoot mounts the container's root and puts the programs into it.
func makeLoadsRoot() error {
	lower, err := filepath.Glob("/var/lib/containers/storage/overlay/*/diff" + pgBin + "postgres")
	if err != nil || len(lower) != 1 {
		return fmt.Errorf("the VM's disk holds %d PostgreSQL images, want one: start it with --disk \"$(test/demo/image)\" %w", len(lower), err)
	}
	for _, d := range []string{"/run/loads", "/run/loads/upper", "/run/loads/work", loadsRoot} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
		if d == "/run/loads" {
			if err := unix.Mount("loads", d, "tmpfs", 0, "size=1500M,nr_inodes=0"); err != nil {
				return err
			}
		}
	}
	options := "lowerdir=" + strings.TrimSuffix(lower[0], pgBin+"postgres") + ",upperdir=/run/loads/upper,workdir=/run/loads/work"
	if err := unix.Mount("overlay", loadsRoot, "overlay", 0, options); err != nil {
		return err
	}
	for _, d := range []string{"/proc", "/dev"} {
		if err := unix.Mount(d, loadsRoot+d, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if err := os.WriteFile(loadsRoot+"/bench", self, 0o755); err != nil {
		return err
	}
	return copyPrograms()
}

// copyPrograms copies git, grep and a C compiler from the VM's own system, with
// the libraries and headers that they need and the image lacks.
func copyPrograms() error {
	script := `set -e
root=$1
put() { for f; do [ -e "$root$f" ] || { [ -e "$f" ] && mkdir -p "$root${f%/*}" && cp -rL "$f" "$root$f"; }; done; }
lib=$(gcc -print-file-name=.)
programs="/usr/bin/git /usr/bin/grep /usr/bin/gcc $(command -v as) $(command -v ld) $(gcc -print-prog-name=cc1) $(gcc -print-prog-name=collect2)"
put $programs
for p in $programs; do put $(ldd "$p" | grep -o '/[^ ]*'); done
for f in crtbegin.o crtbeginS.o crtend.o crtendS.o libgcc.a libgcc_s.so liblto_plugin.so include; do put "$(realpath "$lib")/$f"; done
for f in crt1.o Scrt1.o crti.o crtn.o libc.so libc_nonshared.a libgcc_s.so.1 libm.so.6 libmvec.so.1; do
	put "/usr/lib/x86_64-linux-gnu/$f" "/lib/x86_64-linux-gnu/$f"
done
for f in bits gnu sys asm; do put "/usr/include/x86_64-linux-gnu/$f"; done
for f in asm-generic linux stdio.h stdlib.h string.h strings.h errno.h unistd.h features.h features-time64.h stdc-predef.h alloca.h endian.h; do
	put "/usr/include/$f"
done`
	if out, err := exec.Command("/bin/bash", "-c", script, "bash", loadsRoot).CombinedOutput(); err != nil {
		return fmt.Errorf("copying programs: %w: %s", err, out)
	}
	return nil
}

// makeRepository makes /work/tree a git repository with its files committed.
func makeRepository() error {
	script := `export HOME=/tmp; cd "$1/work/tree" && git init -q . && git config gc.auto 0 && git add . &&
git -c user.name=bench -c user.email=bench@localhost commit -qm all`
	if out, err := exec.Command("/bin/sh", "-c", script, "sh", loadsRoot).CombinedOutput(); err != nil {
		return fmt.Errorf("making a repository: %w: %s", err, out)
	}
	return nil
}

// ownerOf is the user that a file belongs to.
func ownerOf(path string) (int, error) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return int(st.Uid), err
}

package bpf

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// Options sizes the kernel part. Sizes count only where nothing is pinned yet:
// maps that are adopted keep theirs.
type Options struct {
	PinDir      string // default DefaultPinDir
	TableBytes  int    // heap of all tables; default 32 MiB, at least 64 KiB
	Containers  int    // instances at a time, ended ones with living tasks included; default 4,096
	Programs    int    // interned program paths up to 256 bytes; default 8,192
	EventBytes  int    // ring of events, a power of two; default 1 MiB
	EventBudget int    // events a second and container; default 100

	NoCache      bool // walk every path
	CacheEntries int  // directories that the cache holds, 64 bytes each, rounded up to a power of two, at most 131,072; default 16,384
	CheckCache   bool // walk on every hit, too, and count disagreements: for tests
}

// DefaultPinDir is where maps and links live while the node is up.
const DefaultPinDir = "/sys/fs/bpf/dunnage/v1"

func (o Options) withDefaults() Options {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if o.PinDir == "" {
		o.PinDir = DefaultPinDir
	}
	def(&o.TableBytes, 32<<20)
	def(&o.Containers, 4096)
	def(&o.Programs, 8192)
	def(&o.EventBytes, 1<<20)
	def(&o.EventBudget, 100)
	def(&o.CacheEntries, 16384)
	return o
}

// Load loads and attaches the kernel part and pins it, so that it outlives
// this process; or takes over what is pinned: maps are adopted as they are, and
// the new programs are attached before the old ones are let go. It needs root.
// An error leaves what was attached before in force.
func Load(o Options) (*Engine, error) {
	o = o.withDefaults()
	if err := os.MkdirAll(o.PinDir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the pin folder: %w (is a bpf file system mounted at /sys/fs/bpf?)", err)
	}
	if f := probePreempt(); !f.OK {
		return nil, fmt.Errorf("%s: %s", f.Detail, f.Remedy)
	}
	spec, cacheOff, err := loadSpec(o)
	if err != nil {
		return nil, err
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Maps: ebpf.MapOptions{PinPath: o.PinDir}})
	if err != nil {
		return nil, explainLoad(err)
	}
	e, err := newEngine(o, coll)
	if err != nil {
		coll.Close()
		return nil, err
	}
	e.cacheOff = cacheOff
	if err := e.attach(spec); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// loadSpec is the object, sized and cut to what this kernel has, and why it is
// without the cache, or "".
func loadSpec(o Options) (spec *ebpf.CollectionSpec, cacheOff string, err error) {
	if spec, err = loadKernel(); err != nil {
		return nil, "", err
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, "", fmt.Errorf("reading the kernel's types: %w (the kernel must be built with CONFIG_DEBUG_INFO_BTF)", err)
	}
	there := map[string]bool{}
	for _, h := range hooks {
		if n := arguments(kernel, "bpf_lsm_"+h.lsm); n > 0 && (h.args == 0 || h.args == n) {
			there[h.lsm] = true
		} else {
			delete(spec.Programs, h.program)
		}
	}
	for _, h := range hooks {
		if !there[h.lsm] && !h.cache && h.optional == "" {
			return nil, "", fmt.Errorf("this kernel has no LSM hook %s of a known form: it can't enforce policies", h.lsm)
		}
	}
	if err := spec.Variables[kernelVarEventBudget].Set(uint32(o.EventBudget)); err != nil {
		return nil, "", err
	}
	if cacheOff, err = setCache(spec, o, kernel); err != nil {
		return nil, "", err
	}
	size := map[string]int{
		kernelMapHeap:         o.TableBytes / cellBytes,
		kernelMapContainers:   o.Containers,
		kernelMapTallies:      o.Containers,
		kernelMapBindings:     2 * o.Containers,
		kernelMapPrograms:     o.Programs,
		kernelMapLongPrograms: max(o.Programs/64, 16),
		kernelMapEvents:       o.EventBytes,
	}
	for name, m := range spec.Maps {
		if n, ok := size[name]; ok {
			m.MaxEntries = uint32(n)
		}
		if name[0] == '.' {
			continue // each load has its own constants, cache and epochs
		}
		m.Pinning = ebpf.PinByName
		if err := adoptSize(m, filepath.Join(o.PinDir, name)); err != nil {
			return nil, "", err
		}
	}
	return spec, cacheOff, nil
}

// adoptSize gives a map spec the size of the pinned map, if there is one.
func adoptSize(m *ebpf.MapSpec, pin string) error {
	old, err := ebpf.LoadPinnedMap(pin, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the pinned map %s: %w", pin, err)
	}
	defer old.Close()
	m.MaxEntries = old.MaxEntries()
	return nil
}

func hasFunc(kernel *btf.Spec, name string) bool {
	var f *btf.Func
	return kernel.TypeByName(name, &f) == nil
}

// arguments is how many a kernel function takes; 0 if there is none.
func arguments(kernel *btf.Spec, name string) int {
	var f *btf.Func
	if kernel.TypeByName(name, &f) != nil {
		return 0
	}
	return len(f.Type.(*btf.FuncProto).Params)
}

// attach attaches every hook and moves its pin to the new link.
func (e *Engine) attach(spec *ebpf.CollectionSpec) error {
	for _, h := range hooks {
		p := e.coll.Programs[h.program]
		if p == nil {
			continue
		}
		l, err := link.AttachLSM(link.LSMOptions{Program: p})
		if err != nil {
			return fmt.Errorf("attaching to the LSM hook %s: %w", h.lsm, err)
		}
		e.links = append(e.links, l)
	}
	// All are attached: now the old ones may go, one by one.
	for i, n := 0, 0; i < len(hooks); i++ {
		if e.coll.Programs[hooks[i].program] == nil {
			continue
		}
		if err := repin(e.links[n], filepath.Join(e.opts.PinDir, "link_"+hooks[i].program)); err != nil {
			return err
		}
		n++
	}
	return nil
}

// repin pins l at path; a link that is pinned there already is let go after.
func repin(l link.Link, path string) error {
	next := path + "_new"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := l.Pin(next); err != nil {
		return fmt.Errorf("pinning %s: %w", path, err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("pinning %s: %w", path, err)
	}
	return nil
}

// Release takes enforcement off: it unpins and detaches everything. Containers
// that run go on unconfined.
func (e *Engine) Release() error {
	var errs []error
	entries, err := os.ReadDir(e.opts.PinDir)
	errs = append(errs, err)
	for _, entry := range entries { // links first: "link_" has no say, programs without maps would deny
		if len(entry.Name()) > 5 && entry.Name()[:5] == "link_" {
			errs = append(errs, os.Remove(filepath.Join(e.opts.PinDir, entry.Name())))
		}
	}
	errs = append(errs, e.Close(), os.RemoveAll(e.opts.PinDir))
	return errors.Join(errs...)
}

// explainLoad adds the remedy to the errors that a host gives.
func explainLoad(err error) error {
	var ve *ebpf.VerifierError
	switch {
	case errors.As(err, &ve):
		return fmt.Errorf("the kernel's verifier refuses a program: %w", err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("the kernel refuses to load LSM programs: %w (root is needed, and `bpf` in /sys/kernel/security/lsm)", err)
	case errors.Is(err, ebpf.ErrMapIncompatible):
		return fmt.Errorf("what is pinned is of another version: %w (stop it with `dunnage stop --release`)", err)
	}
	return fmt.Errorf("loading the kernel part: %w", err)
}

func randomSeed() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]) | 1, nil
}

package bpf

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// CacheCounts is what the cache did for one container, or for all.
type CacheCounts struct {
	Hit       uint64            `json:"hit"`       // answered from it; counted in bundles of 64 a task
	Fill      uint64            `json:"fill"`      // walked and stored
	Refused   map[string]uint64 `json:"refused"`   // walked and not stored, by reason
	Stale     map[string]uint64 `json:"stale"`     // entries found dead when stored anew, by what changed
	Evicted   uint64            `json:"evicted"`   // entries written over by another directory's
	Disagreed uint64            `json:"disagreed"` // hits that a walk contradicted; counted with Options.CheckCache
}

// The words for enum refusal and enum stale, in their order.
var (
	refusalNames = [...]string{
		"path",       // it does not lead to the root, is too deep, or is not spelt exactly
		"filesystem", // one that moves directories by itself, or a file mounted on a file
		"moving",     // a directory on the way was locked for a change
		"moved",      // something moved while it was walked
		"slot",       // another CPU was writing there
	}
	staleNames = [...]string{"mounts", "directories", "policy"}
)

// Offsets in struct tally, in words.
const (
	tallyHit = iota
	tallyFill
	tallyRefused
	tallyStale     = tallyRefused + len(refusalNames)
	tallyEvicted   = tallyStale + len(staleNames)
	tallyDisagreed = tallyEvicted + 1
	tallyBytes     = 128
	cacheWays      = 2
	entryBytes     = 64

	maxCacheEntries = 65536 * cacheWays
)

// cacheNeeds returns why this kernel can't have the cache, or "".
func cacheNeeds(kernel *btf.Spec) string {
	for _, h := range hooks {
		if h.cache && !hasFunc(kernel, "bpf_lsm_"+h.lsm) {
			return "this kernel has no LSM hook " + h.lsm
		}
	}
	for _, f := range []struct{ record, field string }{
		{"mnt_namespace", "event"}, {"rw_semaphore", "count"}, {"dentry", "d_seq"},
	} {
		if !hasField(kernel, f.record, f.field) {
			return fmt.Sprintf("this kernel's struct %s has no %s", f.record, f.field)
		}
	}
	return ""
}

func hasField(kernel *btf.Spec, record, field string) bool {
	var s *btf.Struct
	if kernel.TypeByName(record, &s) != nil {
		return false
	}
	for _, m := range s.Members {
		if m.Name == field {
			return true
		}
	}
	return false
}

// setCache switches the cache on or off in the object and sizes it. It returns
// why it is off, or "".
func setCache(spec *ebpf.CollectionSpec, o Options, kernel *btf.Spec) (string, error) {
	off := cacheNeeds(kernel)
	if o.NoCache {
		off = "told not to"
	}
	if o.CacheEntries > maxCacheEntries {
		return "", fmt.Errorf("%d cache entries: the kernel part holds at most %d", o.CacheEntries, maxCacheEntries)
	}
	sets := 1
	for off == "" && sets*cacheWays < o.CacheEntries {
		sets *= 2
	}
	for name, value := range map[string]any{
		kernelVarCacheOn: off == "", kernelVarCacheCheck: o.CheckCache, kernelVarCacheMask: uint32(sets - 1),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return "", err
		}
	}
	// The section declares the most there can be; no type describes less.
	data := spec.Maps[".bss"]
	data.ValueSize = uint32(sets * cacheWays * entryBytes)
	data.Key, data.Value, data.Contents = nil, nil, nil
	delete(spec.Variables, kernelVarSets)
	for _, h := range hooks {
		if h.cache && off != "" {
			delete(spec.Programs, h.program)
		}
	}
	return off, nil
}

// CacheOff says why there is no cache, or "".
func (e *Engine) CacheOff() string { return e.cacheOff }

// CacheEntries is how many directories the cache can hold.
func (e *Engine) CacheEntries() int {
	if e.cacheOff != "" {
		return 0
	}
	return int(e.coll.Maps[".bss"].ValueSize()) / entryBytes
}

// CacheCounts returns what the cache did for an instance.
func (e *Engine) CacheCounts(i Instance) (CacheCounts, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	row, ok := e.rowOf(i)
	if !ok {
		return CacheCounts{}, ErrNoInstance
	}
	return e.countsAt(row / rowBytes), nil
}

// CacheTotals is CacheCounts for all instances since this daemon began, ended
// ones included.
func (e *Engine) CacheTotals() CacheCounts {
	e.mu.Lock()
	defer e.mu.Unlock()
	total := e.ended.copy()
	for row := range e.eachRow() {
		total.add(e.countsAt(row / rowBytes))
	}
	return total
}

func (e *Engine) countsAt(slot int) CacheCounts {
	at := func(i int) uint64 { return e.tallies.load64(slot*tallyBytes + 8*i) }
	c := CacheCounts{Hit: 64 * at(tallyHit), Fill: at(tallyFill), Evicted: at(tallyEvicted), Disagreed: at(tallyDisagreed),
		Refused: map[string]uint64{}, Stale: map[string]uint64{}}
	for i, name := range refusalNames {
		c.Refused[name] = at(tallyRefused + i)
	}
	for i, name := range staleNames {
		c.Stale[name] = at(tallyStale + i)
	}
	return c
}

// forgetCounts moves a row's counts to those of ended instances.
func (e *Engine) forgetCounts(slot int) {
	e.ended.add(e.countsAt(slot))
	for at := 0; at < tallyBytes; at += 8 {
		e.tallies.store64(slot*tallyBytes+at, 0)
	}
}

func (c *CacheCounts) add(o CacheCounts) {
	if c.Refused == nil {
		c.Refused, c.Stale = map[string]uint64{}, map[string]uint64{}
	}
	c.Hit += o.Hit
	c.Fill += o.Fill
	c.Evicted += o.Evicted
	c.Disagreed += o.Disagreed
	for name, n := range o.Refused {
		c.Refused[name] += n
	}
	for name, n := range o.Stale {
		c.Stale[name] += n
	}
}

func (c CacheCounts) copy() CacheCounts {
	var out CacheCounts
	out.add(c)
	return out
}

package bpf

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// memory is an array map mapped into this process: stores are visible to the
// kernel part at once, and 64-bit ones are atomic.
type memory []byte

func mapMemory(m *ebpf.Map) (memory, error) {
	size := int(m.ValueSize()) * int(m.MaxEntries())
	page := os.Getpagesize()
	b, err := unix.Mmap(m.FD(), 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", m, err)
	}
	return memory(b), nil
}

func (m memory) close() error { return unix.Munmap(m) }

func (m memory) u64(at int) *uint64 { return (*uint64)(unsafe.Pointer(&m[at : at+8 : at+8][0])) }
func (m memory) u32(at int) *uint32 { return (*uint32)(unsafe.Pointer(&m[at : at+4 : at+4][0])) }

func (m memory) load64(at int) uint64     { return atomic.LoadUint64(m.u64(at)) }
func (m memory) store64(at int, v uint64) { atomic.StoreUint64(m.u64(at), v) }
func (m memory) add64(at int) uint64      { return atomic.AddUint64(m.u64(at), 1) }
func (m memory) load32(at int) uint32     { return atomic.LoadUint32(m.u32(at)) }
func (m memory) store32(at int, v uint32) { atomic.StoreUint32(m.u32(at), v) }

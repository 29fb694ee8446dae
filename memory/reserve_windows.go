package memory

import (
	"math/bits"
	"syscall"
	"unsafe"
)

// defaultCapacity is address space, not memory.
const defaultCapacity = 512 << 20 << (bits.UintSize / 64 * 4)

// Constants of VirtualAlloc and VirtualFree, from memoryapi.h.
const (
	memCommit     = 0x1000
	memReserve    = 0x2000
	memRelease    = 0x8000
	pageReadWrite = 0x04
)

// chunk is the granularity of commits, so that a growing mark does not need a system call for
// every page.
const chunk = 4 << 20

// pages is a reserved range of memory outside the Go heap.
type pages struct {
	mem         []byte
	alloc, free *syscall.LazyProc
}

// reserve reserves address space. None of it is usable before commit.
func reserve(bytes int) (pages, error) {
	kernel32 := syscall.NewLazyDLL("kernel32.dll")
	p := pages{alloc: kernel32.NewProc("VirtualAlloc"), free: kernel32.NewProc("VirtualFree")}
	for _, proc := range []*syscall.LazyProc{p.alloc, p.free} {
		if err := proc.Find(); err != nil {
			return pages{}, err
		}
	}
	addr, _, err := p.alloc.Call(0, uintptr(bytes), memReserve, pageReadWrite)
	if addr == 0 {
		return pages{}, err
	}
	// The address is outside the Go heap, so it may be held in a uintptr.
	p.mem = unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), bytes)
	return p, nil
}

// commit makes the bytes from low to high usable, rounded outwards to whole chunks. Committing a page twice
// has no effect.
func (p *pages) commit(low, high int64) error {
	if low >= high {
		return nil
	}
	low = low / chunk * chunk
	high = min((high+chunk-1)/chunk*chunk, int64(len(p.mem)))
	addr, _, err := p.alloc.Call(uintptr(unsafe.Pointer(&p.mem[low])), uintptr(high-low), memCommit, pageReadWrite)
	if addr == 0 {
		return err
	}
	return nil
}

// protect does nothing here.
func (p *pages) protect(low, high int64, open bool) {}

// release returns the range to the system.
func (p *pages) release() error {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(p.mem)))
	p.mem = nil
	if ok, _, err := p.free.Call(base, 0, memRelease); ok == 0 {
		return err
	}
	return nil
}

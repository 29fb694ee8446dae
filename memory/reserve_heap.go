//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || windows)

package memory

import (
	"fmt"
	"math/bits"
	"unsafe"
)

// defaultCapacity is smaller than on other systems, because the collector counts it as live.
const defaultCapacity = 256 << 20 << (bits.UintSize / 64 * 2)

// pages is a range of memory on the Go heap.
type pages struct{ mem []byte }

// reserve allocates the whole range. Go gets fresh zeroed pages for it from the system, so most systems
// supply memory only at the first touch.
func reserve(bytes int) (p pages, err error) {
	// make panics for a size beyond the address space; the caller gets an error instead.
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%v", fault)
		}
	}()
	mem := make([]byte, bytes+maxAlign)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(mem))) & (maxAlign - 1)
	return pages{mem[skip : int(skip)+bytes]}, nil
}

// commit makes the bytes from low to high usable. Here they always are.
func (p *pages) commit(low, high int64) error { return nil }

// protect does nothing here.
func (p *pages) protect(low, high int64, open bool) {}

// release leaves the range to the collector.
func (p *pages) release() error {
	p.mem = nil
	return nil
}

//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package memory

import (
	"math/bits"
	"syscall"
)

// defaultCapacity is address space, not memory.
const defaultCapacity = 512 << 20 << (bits.UintSize / 64 * 4)

// pages is a reserved range of memory outside the Go heap.
type pages struct{ mem []byte }

// reserve maps anonymous memory. The system supplies a zeroed page at the first touch; noReserve asks it
// not to reserve swap space before that.
func reserve(bytes int) (pages, error) {
	mem, err := syscall.Mmap(-1, 0, bytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|noReserve)
	return pages{mem}, err
}

// commit makes the bytes from low to high usable. Here they always are.
func (p *pages) commit(low, high int64) error { return nil }

// release returns the range to the system.
func (p *pages) release() error {
	mem := p.mem
	p.mem = nil
	return syscall.Munmap(mem)
}

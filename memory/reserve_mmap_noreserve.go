//go:build linux || darwin

package memory

import "syscall"

const noReserve = syscall.MAP_NORESERVE

// protect makes whole pages inaccessible, or accessible again.
func (p *pages) protect(low, high int64, open bool) {
	prot := syscall.PROT_NONE
	if open {
		prot = syscall.PROT_READ | syscall.PROT_WRITE
	}
	if err := syscall.Mprotect(p.mem[low:high], prot); err != nil && open {
		panic(err) // otherwise a page of the arena would stay inaccessible
	}
}

//go:build freebsd || netbsd || openbsd || dragonfly

package memory

// noReserve is 0: these systems overcommit by default, or reject the flag.
const noReserve = 0

// protect does nothing here: package syscall has no mprotect.
func (p *pages) protect(low, high int64, open bool) {}

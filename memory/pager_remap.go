//go:build darwin || freebsd

package memory

import (
	"syscall"
	"unsafe"
)

// Populate writes to every page.
func (System) Populate(mem []byte) error {
	touch(mem)
	return nil
}

// Discard maps fresh pages over the range.
func (System) Discard(mem []byte) error {
	const prot, flags = syscall.PROT_READ | syscall.PROT_WRITE, syscall.MAP_ANON | syscall.MAP_PRIVATE | syscall.MAP_FIXED | noReserve
	addr := unsafe.Pointer(unsafe.SliceData(mem))
	if _, _, err := syscall.Syscall6(syscall.SYS_MMAP, uintptr(addr), uintptr(len(mem)), prot, flags, ^uintptr(0), 0); err != 0 {
		return err
	}
	return nil
}

package memory

import (
	"syscall"
	"unsafe"
)

const memDecommit = 0x4000

// Populate commits the pages and writes to each of them, because the system supplies a committed page only
// at its first access.
func (System) Populate(mem []byte) error {
	kernel32 := syscall.NewLazyDLL("kernel32.dll")
	addr, _, err := kernel32.NewProc("VirtualAlloc").Call(uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), memCommit, pageReadWrite)
	if addr == 0 {
		return err
	}
	touch(mem)
	return nil
}

// Discard decommits the pages. They must not be touched before the next Populate.
func (System) Discard(mem []byte) error {
	kernel32 := syscall.NewLazyDLL("kernel32.dll")
	if ok, _, err := kernel32.NewProc("VirtualFree").Call(uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), memDecommit); ok == 0 {
		return err
	}
	return nil
}

package memory

import (
	"runtime"
	"syscall"
	"unsafe"
)

// madvPopulateWrite is MADV_POPULATE_WRITE, of Linux 5.14 and later.
const madvPopulateWrite = 23

// hugePage is the size of a huge page where there are any: of x86 and of ARM with pages
// of 4 KiB.
const hugePage = 2 << 20

// Populate asks for huge pages where the range has room for one: they are made, found and
// handed back faster. The system may refuse them, and no harm is done.
func (System) Populate(mem []byte) error {
	if len(mem) >= hugePage {
		_ = syscall.Madvise(mem, syscall.MADV_HUGEPAGE)
	}
	for {
		switch err := syscall.Madvise(mem, madvPopulateWrite); err {
		case syscall.EINTR, syscall.EAGAIN:
		case syscall.EINVAL: // an older kernel
			touch(mem)
			return nil
		default:
			return err
		}
	}
}

// renews says that mmap takes its six arguments as they are, which it does not everywhere.
const renews = runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"

// Discard hands the pages back. A range with room for a huge page is mapped anew: that
// ends the tables of its small pages, which would keep huge ones away for good.
func (System) Discard(mem []byte) error {
	if renews && len(mem) >= hugePage {
		const prot, flags = syscall.PROT_READ | syscall.PROT_WRITE, syscall.MAP_ANON | syscall.MAP_PRIVATE | syscall.MAP_FIXED | noReserve
		addr := unsafe.Pointer(unsafe.SliceData(mem))
		if _, _, err := syscall.Syscall6(syscall.SYS_MMAP, uintptr(addr), uintptr(len(mem)), prot, flags, ^uintptr(0), 0); err == 0 {
			return nil
		}
	}
	return syscall.Madvise(mem, syscall.MADV_DONTNEED)
}

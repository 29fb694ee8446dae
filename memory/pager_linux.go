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
		case syscall.EINVAL: // an older kernel, or pages that renew has kept without access
			if err := syscall.Mprotect(mem, syscall.PROT_READ|syscall.PROT_WRITE); err != nil {
				return err
			}
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
		return renew(mem, mapAt)
	}
	return syscall.Madvise(mem, syscall.MADV_DONTNEED)
}

// mapFixedNoreplace is MAP_FIXED_NOREPLACE, of Linux 4.17 and later: a mapping that is
// refused where there is one. Older kernels make it elsewhere then.
const mapFixedNoreplace = 0x100000

// mapper maps anonymous memory at the addresses of a range, and may fail.
type mapper func(mem []byte, prot, how uintptr) error

// mapAt is the mapper of the system.
func mapAt(mem []byte, prot, how uintptr) error {
	const flags = syscall.MAP_ANON | syscall.MAP_PRIVATE | noReserve
	want := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	got, _, err := syscall.Syscall6(syscall.SYS_MMAP, want, uintptr(len(mem)), prot, flags|how, ^uintptr(0), 0)
	switch {
	case err != 0:
		return err
	case got != want:
		_, _, _ = syscall.Syscall(syscall.SYS_MUNMAP, got, uintptr(len(mem)), 0) // nobody has it
		return syscall.EEXIST
	}
	return nil
}

// renew maps fresh pages over a range. The kernel may fail halfway, when the old pages are
// gone and the new ones not there: then anybody's next mapping could come to lie within
// the arena. So the range is taken again where it has become free, as pages without
// access where there is nothing else; Populate opens those.
func renew(mem []byte, mmap mapper) error {
	const open = syscall.PROT_READ | syscall.PROT_WRITE
	refused := mmap(mem, open, syscall.MAP_FIXED)
	if refused == nil {
		return nil
	}
	err := mmap(mem, open, mapFixedNoreplace)
	if err != nil && err != syscall.EEXIST {
		if err = mmap(mem, syscall.PROT_NONE, mapFixedNoreplace); err == nil {
			return refused
		}
	}
	if err == syscall.EEXIST { // all is as it was
		return syscall.Madvise(mem, syscall.MADV_DONTNEED)
	}
	return err
}

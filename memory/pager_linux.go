package memory

import (
	"runtime"
	"syscall"
	"unsafe"
)

// madvPopulateWrite is MADV_POPULATE_WRITE, available since Linux 5.14.
const madvPopulateWrite = 23

// hugePage is the size of a huge page on x86, and on ARM with 4 KiB pages.
const hugePage = 2 << 20

// Populate first requests huge pages if the range is large enough for one, because they are faster to
// allocate, access and release. It ignores a refusal of huge pages.
func (System) Populate(mem []byte) error {
	if len(mem) >= hugePage {
		_ = syscall.Madvise(mem, syscall.MADV_HUGEPAGE)
	}
	for {
		switch err := syscall.Madvise(mem, madvPopulateWrite); err {
		case syscall.EINTR, syscall.EAGAIN:
		case syscall.EINVAL: // an older kernel, or pages that renew left inaccessible
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

// renews reports whether the mmap system call takes its six arguments directly. Some architectures pass
// them in another way.
const renews = runtime.GOARCH == "amd64" || runtime.GOARCH == "arm64"

// Discard returns the pages to the system. If the range is large enough for a huge page and renews is set,
// Discard maps the range anew, because that removes the page tables of its small pages, which would otherwise
// prevent huge pages permanently.
func (System) Discard(mem []byte) error {
	if renews && len(mem) >= hugePage {
		return renew(mem, mapAt)
	}
	return syscall.Madvise(mem, syscall.MADV_DONTNEED)
}

// mapFixedNoreplace is MAP_FIXED_NOREPLACE, available since Linux 4.17: mmap fails if there is already a
// mapping at the address. Older kernels choose another address in that case.
const mapFixedNoreplace = 0x100000

// mapper maps anonymous memory at the addresses of a range. It may fail.
type mapper func(mem []byte, prot, how uintptr) error

// mapAt is the system's mapper.
func mapAt(mem []byte, prot, how uintptr) error {
	const flags = syscall.MAP_ANON | syscall.MAP_PRIVATE | noReserve
	want := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	got, _, err := syscall.Syscall6(syscall.SYS_MMAP, want, uintptr(len(mem)), prot, flags|how, ^uintptr(0), 0)
	switch {
	case err != 0:
		return err
	case got != want:
		_, _, _ = syscall.Syscall(syscall.SYS_MUNMAP, got, uintptr(len(mem)), 0) // no code knows this address yet
		return syscall.EEXIST
	}
	return nil
}

// renew maps fresh pages over a range. The kernel may fail halfway, after removing the old pages but
// before mapping the new ones; an unrelated mapping could then be placed within the arena. So if the
// range has become free, renew maps it again, without access if nothing else is possible; Populate makes
// such pages accessible.
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
	if err == syscall.EEXIST { // the old mapping is intact
		return syscall.Madvise(mem, syscall.MADV_DONTNEED)
	}
	return err
}

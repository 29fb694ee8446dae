package memory

import "syscall"

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

// Discard hands the pages back.
func (System) Discard(mem []byte) error { return syscall.Madvise(mem, syscall.MADV_DONTNEED) }

package memory

import "syscall"

// madvPopulateWrite is MADV_POPULATE_WRITE, of Linux 5.14 and later.
const madvPopulateWrite = 23

type system struct{}

func (system) Populate(mem []byte) error {
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

func (system) Discard(mem []byte) error { return syscall.Madvise(mem, syscall.MADV_DONTNEED) }

package offload

import (
	"errors"
	"os"
	"syscall"
)

// reserve reserves disk space for the bytes from low to high of a file, which read as zero.
func reserve(f *os.File, low, high int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, low, high-low)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, errors.ErrUnsupported):
			return fill(f, low, high)
		default:
			return err
		}
	}
}

//go:build unix

package safetensors

import (
	"errors"
	"os"
	"syscall"
)

// syncDir flushes a directory, so that a rename in it survives a loss of power.
// A file system that cannot do that says so with EINVAL or ENOTSUP, which is no
// error: there is nothing better to do on it.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}

//go:build !linux

package offload

import "os"

// reserve reserves disk space for the bytes from low to high of a file, which read as zero.
func reserve(f *os.File, low, high int64) error { return fill(f, low, high) }

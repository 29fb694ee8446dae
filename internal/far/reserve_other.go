//go:build !linux

package far

import "os"

// reserve reserves space on the disk for the bytes from low to high of a file, which are zero.
func reserve(f *os.File, low, high int64) error { return fill(f, low, high) }

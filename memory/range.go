package memory

import (
	"errors"
	"io"
)

// Range is a range of addresses that the processor cannot read, such as the memory of a GPU. An [Arena]
// places buffers in it as in its own range ([ArenaConfig].Range). The owner of the Range adds a buffer's
// offset ([Arena.Extent]) to the start address.
type Range interface {
	// Page returns the size of a page in bytes, a power of two of at least 4096.
	Page() int64
	// Reserve reserves addresses without memory. Bytes is a multiple of the page size.
	Reserve(bytes int64) error
	// Commit makes the pages of the bytes from low to high present. Pages that are already present do not
	// change. If it fails, it adds no pages.
	Commit(low, high int64) error
	// Discard releases the present pages from low to high, which are page boundaries.
	Discard(low, high int64) error
	// Present returns the total size of the present pages from low to high, in bytes.
	Present(low, high int64) int64
	// Release returns all pages and addresses.
	Release() error
	// ReadAt and WriteAt copy bytes of present pages.
	io.ReaderAt
	io.WriterAt
}

// ErrFar is returned by Data of an arena whose range the processor cannot read.
var ErrFar = errors.New("memory: the processor cannot read this range")

// UnbackedRange is a [Range] without memory, for arenas whose bytes are never read. Its value is
// the size of a page in bytes.
type UnbackedRange int64

// Page returns the page size.
func (u UnbackedRange) Page() int64 { return int64(u) }

// Reserve does nothing.
func (UnbackedRange) Reserve(int64) error { return nil }

// Commit does nothing.
func (UnbackedRange) Commit(int64, int64) error { return nil }

// Discard does nothing.
func (UnbackedRange) Discard(int64, int64) error { return nil }

// Present returns 0.
func (UnbackedRange) Present(int64, int64) int64 { return 0 }

// Release does nothing.
func (UnbackedRange) Release() error { return nil }

// ReadAt reads zeros.
func (UnbackedRange) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

// WriteAt does nothing.
func (UnbackedRange) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

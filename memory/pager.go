package memory

import (
	"sync/atomic"
	"unsafe"
)

// Pager supplies the pages of an arena's range, and takes them back. [System] is the operating system's;
// a test may wrap it to refuse the nth page. A range begins at a page boundary, and ends at one or at the
// end of the arena.
type Pager interface {
	// Populate makes every page of the range present, so that writing to it causes no page
	// fault. Their contents do not change.
	Populate(mem []byte) error
	// Discard returns the pages of the range to the system. The addresses stay reserved. Until the next
	// Populate, they read as zeros or must not be accessed, depending on the system.
	Discard(mem []byte) error
}

// NopPager is a [Pager] that does nothing, for arenas whose bytes are never accessed.
type NopPager struct{}

// Populate does nothing.
func (NopPager) Populate([]byte) error { return nil }

// Discard does nothing.
func (NopPager) Discard([]byte) error { return nil }

// System is the [Pager] of the operating system. Linux populates and discards with madvise
// (MADV_POPULATE_WRITE, MADV_DONTNEED). macOS and FreeBSD discard by mapping fresh pages over the range,
// and so does Linux on amd64 and arm64 for ranges large enough for huge pages. Windows decommits and commits.
// Where the system has no such call, Populate writes to each page, and Discard fills the range with zeros and
// keeps its pages.
type System struct{}

// touch writes to every page of a range without changing its contents.
func touch(mem []byte) {
	for i := 0; i < len(mem); i += smallestPage {
		atomic.AddUint32((*uint32)(unsafe.Pointer(&mem[i])), 0)
	}
}

// smallestPage is the smallest page size of any system.
const smallestPage = 4096

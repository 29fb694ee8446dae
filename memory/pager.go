package memory

import (
	"sync/atomic"
	"unsafe"
)

// Pager supplies the pages of an arena's range, and takes them back. The system is one
// ([System]); a test may put its own in between, to refuse the nth page. A range begins
// on a page; it ends on one, or with the arena.
type Pager interface {
	// Populate makes every page of the range present, so that writing to it is no page
	// fault. Their contents stay.
	Populate(mem []byte) error
	// Discard hands the pages of the range back. The addresses stay, and read as zeros.
	Discard(mem []byte) error
}

// Unpaged is a [Pager] that does nothing, for arenas whose bytes nobody looks at.
type Unpaged struct{}

// Populate does nothing.
func (Unpaged) Populate([]byte) error { return nil }

// Discard does nothing.
func (Unpaged) Discard([]byte) error { return nil }

// System is the [Pager] of the operating system. Linux populates and discards with
// madvise (MADV_POPULATE_WRITE, MADV_DONTNEED), but for ranges with room for huge pages:
// it discards those as macOS and FreeBSD discard all, which map fresh pages over the
// range. Windows decommits and commits. If there is no such call pages are made present
// by a write to each, and a discarded range is filled with zeros and stays.
type System struct{}

// touch writes to every page of a range and changes nothing.
func touch(mem []byte) {
	for i := 0; i < len(mem); i += smallestPage {
		atomic.AddUint32((*uint32)(unsafe.Pointer(&mem[i])), 0)
	}
}

// smallestPage is the size of the smallest pages there are.
const smallestPage = 4096

package memory

import (
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/weir-ml/weir/internal/invariants"
)

// Range is a range of addresses that the processor cannot read, such as that of a GPU's
// memory. An [Arena] places buffers in it as in its own ([ArenaConfig].Range); its owner
// adds the offset of a buffer ([Arena.Extent]) to the start.
type Range interface {
	// Page returns the bytes of a page, a power of two from 4096 on.
	Page() int64
	// Reserve takes the addresses, a multiple of the page, without memory.
	Reserve(bytes int64) error
	// Commit makes the pages present on which the bytes from low to high lie. Those that are
	// present stay as they are. If it fails, none is left that was not there before.
	Commit(low, high int64) error
	// Discard hands back those pages from low to high, whole ones, that are present.
	Discard(low, high int64) error
	// Present returns the bytes of the pages from low to high that are present.
	Present(low, high int64) int64
	// Release gives back pages and addresses.
	Release() error
	// ReadAt and WriteAt copy bytes of present pages.
	io.ReaderAt
	io.WriterAt
}

// ErrFar is returned by Data of an arena whose range the processor cannot read.
var ErrFar = errors.New("memory: the processor cannot read this range")

// Unbacked is a [Range] without memory, for arenas whose bytes nobody looks at. Its value
// is the page, in bytes.
type Unbacked int64

// Page returns the page.
func (u Unbacked) Page() int64 { return int64(u) }

// Reserve does nothing.
func (Unbacked) Reserve(int64) error { return nil }

// Commit does nothing.
func (Unbacked) Commit(int64, int64) error { return nil }

// Discard does nothing.
func (Unbacked) Discard(int64, int64) error { return nil }

// Present returns 0.
func (Unbacked) Present(int64, int64) int64 { return 0 }

// Release does nothing.
func (Unbacked) Release() error { return nil }

// ReadAt reads zeros.
func (Unbacked) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

// WriteAt does nothing.
func (Unbacked) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// Extent returns where a buffer lies: the offset of its first byte from the start of the
// range, and its size in bytes. The errors are those of Data, but for ErrFar.
func (a *Arena) Extent(h Handle) (off, bytes int64, err error) {
	s := a.lookup(h)
	if s == nil {
		return 0, 0, a.missing("extent", h)
	}
	if a.released > 0 && a.regions[s.scope].released {
		return 0, 0, a.withoutPages("extent", h, s)
	}
	return s.off, s.bytes, nil
}

// examined reports whether the arena keeps an eye on its bytes.
func (a *Arena) examined() bool { return invariants.Enabled && a.far == nil }

// reserve takes the range, of far where there is one.
func (a *Arena) reserve(far Range) (err error) {
	if far == nil {
		a.pages, err = reserve(int(a.capacity))
		return err
	}
	if a.page = far.Page(); a.page < maxAlign || bits.OnesCount64(uint64(a.page)) != 1 {
		return fmt.Errorf("a page of %d bytes, want a power of two from %d on", a.page, maxAlign)
	}
	a.far, a.capacity = far, a.paged(a.capacity)
	return far.Reserve(a.capacity)
}

// commit makes the bytes from low to high usable.
func (a *Arena) commit(low, high int64) error {
	if a.far != nil && low < high {
		return a.far.Commit(low, high)
	}
	return a.pages.commit(low, high)
}

// populate makes the pages of bytes present that are committed.
func (a *Arena) populate(low, high int64) error {
	if a.far != nil {
		return nil
	}
	return a.pager.Populate(a.pages.mem[low:high])
}

// discardRun hands the pages of a run back.
func (a *Arena) discardRun(run span) error {
	if a.far != nil {
		return a.far.Discard(run.off, run.off+run.size)
	}
	return a.pager.Discard(a.pages.mem[run.off : run.off+run.size])
}

// present returns the bytes of a run for which there are pages, -1 where nobody says.
func (a *Arena) present(run span) int64 {
	if a.far != nil {
		return a.far.Present(run.off, run.off+run.size)
	}
	return kernelBytes(a.pages.mem[run.off : run.off+run.size])
}

// release gives the range back.
func (a *Arena) release() error {
	if a.far != nil {
		return a.far.Release()
	}
	return a.pages.release()
}

// farChunk is the most bytes that are copied from or to a far range at once.
const farChunk = 1 << 20

// writeTo writes the bytes of a buffer.
func (a *Arena) writeTo(w io.Writer, s *slot) error {
	if a.far == nil {
		_, err := w.Write(a.pages.mem[s.off : s.off+s.bytes])
		return err
	}
	_, err := io.CopyBuffer(w, io.NewSectionReader(a.far, s.off, s.bytes), make([]byte, min(s.bytes, farChunk)))
	return err
}

// readFrom reads the bytes of a buffer, or skips them where there is none any more.
func (a *Arena) readFrom(r io.Reader, s *slot, bytes int64) error {
	var to io.Writer = io.Discard
	switch {
	case s == nil:
	case a.far == nil:
		_, err := io.ReadFull(r, a.pages.mem[s.off:s.off+s.bytes])
		return err
	default:
		to = io.NewOffsetWriter(a.far, s.off)
	}
	n, err := io.CopyBuffer(to, io.LimitReader(r, bytes), make([]byte, min(bytes, farChunk)))
	if err == nil && n < bytes {
		err = io.ErrUnexpectedEOF
	}
	return err
}

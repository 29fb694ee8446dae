package kernels

import (
	"fmt"
	"io"
	"iter"
	"math"
	"sync"

	"github.com/weir-ml/weir/memory"
)

// space is the part of a device that owns memory. It implements [memory.Space] of Buffer,
// [memory.Book], [memory.Reclaimer], [memory.Planned], [memory.Scoped] and [memory.PeakWatched]
// over an arena. [Host], [Null] and [Buffers] embed it.
type space struct {
	arena *memory.Arena
	// table guards the arena's table of buffers when it changes, and when another goroutine
	// looks up a buffer. The device's own goroutine, which is the only one to change the table,
	// reads it without the lock.
	table   sync.Mutex
	alone   bool            // no other goroutine looks up buffers, so calls within a step take no lock
	settled []memory.Handle // scratch of ResolveOrder
	loans   int             // views that Transfer or Encode is reading; guarded by table
}

// Alloc returns a buffer of n elements with one plain reference, owned by the caller. Its
// contents are undefined. A buffer of 0 elements, such as the input of an expert without tokens, takes
// one byte. The error wraps memory.ErrOutOfMemory if the buffer does not fit, and
// ErrShape if n or t is invalid.
func (s *space) Alloc(class memory.Class, t DType, n int) (Buffer, error) {
	if n < 0 || n > maxElements || t > Uint8 {
		return Buffer{}, impossible("Alloc", t, n)
	}
	s.lock()
	defer s.unlock()
	h, err := s.arena.Alloc(class, max(int64(n)*t.Bytes(), 1))
	if err != nil {
		return Buffer{}, refused("Alloc", t, n, err)
	}
	return Buffer{Handle: h, N: n, Type: t}, nil
}

// maxElements is the greatest n for which the size in bytes does not overflow, whatever the
// type.
const maxElements = math.MaxInt / 4

// impossible returns the error for a buffer that cannot exist on any device.
func impossible(call string, t DType, n int) error {
	return fmt.Errorf("%w: %s of %d elements of %s", ErrShape, call, n, t)
}

// refused returns the error for a buffer that the arena could not allocate.
func refused(call string, t DType, n int, err error) error {
	return fmt.Errorf("kernels: %s of %d %s: %w", call, n, t, err)
}

// lock locks the table for a call within a step, unless no other goroutine looks up buffers.
func (s *space) lock() {
	if !s.alone {
		s.table.Lock()
	}
}

func (s *space) unlock() {
	if !s.alone {
		s.table.Unlock()
	}
}

// AllocIn returns a buffer of class Resident in a scope; see [memory.Arena.AllocIn].
func (s *space) AllocIn(scope memory.Scope, t DType, n int) (Buffer, error) {
	if n <= 0 || n > maxElements || t > Uint8 {
		return Buffer{}, impossible("AllocIn", t, n)
	}
	s.table.Lock()
	defer s.table.Unlock()
	h, err := s.arena.AllocIn(scope, int64(n)*t.Bytes())
	if err != nil {
		return Buffer{}, refused("AllocIn", t, n, err)
	}
	return Buffer{Handle: h, N: n, Type: t}, nil
}

// Scope returns the statistics of a scope of the arena.
func (s *space) Scope(scope memory.Scope) memory.ScopeStats { return s.arena.Scope(scope) }

// ReleasePages returns the pages of scopes to the system between steps.
func (s *space) ReleasePages(w io.Writer, scopes ...memory.Scope) error {
	s.table.Lock()
	defer s.table.Unlock()
	if s.loans > 0 {
		return fmt.Errorf("%w: ReleasePages while %d transfers read buffers of this device", memory.ErrLive, s.loans)
	}
	return s.arena.ReleasePages(w, scopes...)
}

// RestorePages restores the pages that ReleasePages released.
func (s *space) RestorePages(r io.Reader) error {
	s.table.Lock()
	defer s.table.Unlock()
	return s.arena.RestorePages(r)
}

// Touched returns the bytes that the last planned step touched; see [memory.Arena.Touched].
func (s *space) Touched() (bytes, top int64, known bool) { return s.arena.Touched() }

// lent adds more to the number of views that Transfer or Encode is reading.
func (s *space) lent(more int) {
	s.table.Lock()
	s.loans += more
	s.table.Unlock()
}

// SetLayout places the buffers of steps according to a layout, until SetLayout(nil).
func (s *space) SetLayout(layout *memory.Layout) error {
	s.table.Lock()
	defer s.table.Unlock()
	return s.arena.SetLayout(layout)
}

// AllowReorder allows the next n allocations at a place to come in any order.
func (s *space) AllowReorder(n int) { s.arena.AllowReorder(n) }

// ResolveOrder assigns the buffers to the layout's allocations; see [memory.Arena.ResolveOrder].
func (s *space) ResolveOrder(buffers []Buffer) error {
	s.table.Lock()
	defer s.table.Unlock()
	s.settled = s.settled[:0]
	for _, b := range buffers {
		s.settled = append(s.settled, b.Handle)
	}
	return s.arena.ResolveOrder(s.settled)
}

// Unrequested returns the bytes that the layout plans for live buffers, and that they did not request.
func (s *space) Unrequested() int64 { return s.arena.Unrequested() }

// SetPlace sets the place that a step has reached in its program.
func (s *space) SetPlace(place int) { s.arena.SetPlace(place) }

// WatchPeak starts a period for AtPeak, or stops watching.
func (s *space) WatchPeak(on bool) { s.arena.WatchPeak(on) }

// AtPeak iterates over the buffers that were live at the highest memory level since WatchPeak.
func (s *space) AtPeak() iter.Seq[memory.PeakBuffer] { return s.arena.AtPeak() }

// All iterates over the live buffers in order of allocation, for diagnostics. It may allocate.
func (s *space) All() iter.Seq[memory.Info] { return s.arena.All() }

// Bytes returns the size of the buffer, or 0 if it is stale.
func (s *space) Bytes(b Buffer) int64 {
	bytes := s.arena.Bytes(b.Handle)
	if b.first > 0 && bytes > 0 {
		return int64(b.N) * b.Type.Bytes()
	}
	return bytes
}

// Class returns the class that the buffer was allocated with.
func (s *space) Class(b Buffer) memory.Class { return s.arena.Class(b.Handle) }

// Retain adds a plain reference for the caller.
func (s *space) Retain(b Buffer) error {
	if b.first > 0 {
		return b.unreferenced("Retain")
	}
	return s.arena.Retain(b.Handle)
}

// Release releases a plain reference and returns the number of bytes freed.
func (s *space) Release(b Buffer) (freed int64, err error) {
	if b.first > 0 {
		return 0, b.unreferenced("Release")
	}
	s.lock()
	defer s.unlock()
	return s.arena.Release(b.Handle)
}

// Hold turns a plain reference into a held one.
func (s *space) Hold(b Buffer) (held int64, err error) {
	held, _, err = s.HoldWithClass(b)
	return held, err
}

// HoldWithClass is like Hold, but also returns the class.
func (s *space) HoldWithClass(b Buffer) (held int64, class memory.Class, err error) {
	if b.first > 0 {
		return 0, 0, b.unreferenced("Hold")
	}
	return s.arena.HoldWithClass(b.Handle)
}

// UnholdAndRelease combines Unhold and Release.
func (s *space) UnholdAndRelease(b Buffer) (unheld, freed int64, class memory.Class, err error) {
	if b.first > 0 {
		return 0, 0, 0, b.unreferenced("UnholdAndRelease")
	}
	s.lock()
	defer s.unlock()
	return s.arena.UnholdAndRelease(b.Handle)
}

// Unhold turns a held reference into a plain one, owned by the caller.
func (s *space) Unhold(b Buffer) (unheld int64, err error) {
	if b.first > 0 {
		return 0, b.unreferenced("Unhold")
	}
	return s.arena.Unhold(b.Handle)
}

// Live returns the total size of all buffers in bytes, as requested.
func (s *space) Live() int64 { return s.arena.Live() }

// Stats stores the state of the book in st.
func (s *space) Stats(st *memory.Stats) { s.arena.Stats(st) }

// ResetPeak sets the peak to the current live bytes.
func (s *space) ResetPeak() { s.arena.ResetPeak() }

// Mark returns the current position in the order of allocations.
func (s *space) Mark() uint64 { return s.arena.Mark() }

// Reclaim frees every buffer allocated since mark that is not Lasting.
func (s *space) Reclaim(mark uint64) int64 {
	s.table.Lock()
	defer s.table.Unlock()
	return s.arena.Reclaim(mark)
}

// Hash returns a hash of a buffer's contents and size ([memory.Hasher]).
func (s *space) Hash(b Buffer) (uint64, error) {
	if b.first > 0 {
		return 0, b.unreferenced("Hash")
	}
	return s.arena.Hash(b.Handle)
}

// Examine returns an error if a view of a released buffer was written ([memory.Arena.Examine]).
func (s *space) Examine() error {
	s.table.Lock()
	defer s.table.Unlock()
	return s.arena.Examine()
}

// Close returns all memory to the system and makes every handle stale.
func (s *space) Close() error {
	s.table.Lock()
	defer s.table.Unlock()
	return s.arena.Close()
}

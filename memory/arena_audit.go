package memory

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/weir-ml/weir/internal/engine/invariants"
)

// Live returns the bytes of all buffers, as requested.
func (a *Arena) Live() int64 { return a.meter.live }

// Stats fills s. Reserved is the high-water mark: the bytes at both ends of the range that buffers have
// ever covered, except those whose pages are released.
func (a *Arena) Stats(s *Stats) {
	a.meter.Stats(s)
	s.Reserved = a.low + a.capacity - a.high
	if a.released == 0 {
		return
	}
	live := a.meter.live
	for scope := range Scope(NumScopes) {
		if r := &a.regions[scope]; r.released {
			s.Reserved -= a.reserved(scope)
			live -= r.live
		}
	}
	s.Reserved = max(s.Reserved, live) // in a full arena, buffers of a step lie between those of Weights
}

// ResetPeak makes the current level the peak.
func (a *Arena) ResetPeak() { a.meter.ResetPeak() }

// Mark returns the current position in the order of allocations.
func (a *Arena) Mark() uint64 { return uint64(a.meter.allocs) }

// Reclaim frees every buffer allocated since mark that is not Lasting,
// regardless of its references, and returns the bytes freed.
func (a *Arena) Reclaim(mark uint64) int64 {
	var freed int64
	for i := range a.slots {
		if s := &a.slots[i]; s.live() && s.serial >= mark && !s.class.Lasting() {
			freed += a.take(uint32(i), s)
		}
	}
	return freed
}

// All iterates over the live buffers in allocation order. The iteration uses a snapshot, which it allocates
// when it starts.
func (a *Arena) All() iter.Seq[Info] {
	return func(yield func(Info) bool) {
		var live []Info
		for i := range a.slots {
			if s := &a.slots[i]; s.live() {
				live = append(live, a.info(uint32(i), s))
			}
		}
		inOrder(live, yield)
	}
}

// info describes the live buffer in slot i.
func (a *Arena) info(i uint32, s *slot) Info {
	return Info{
		Handle: Handle{i, s.generation, a.number},
		Class:  s.class, Bytes: s.bytes, Plain: s.plain, Held: s.held, Serial: s.serial, Offset: s.off,
	}
}

// peakWatch records the highest level of a period, so that AtPeak can list the buffers that
// were live then. Each release makes a comparison or two, and never looks at other buffers.
type peakWatch struct {
	watched bool
	level   int64        // the highest level at which a buffer was released
	before  uint64       // buffers that were live at that level have lower serial numbers
	gone    []PeakBuffer // buffers that were live at that level and have since been released
}

// atPeak describes the buffer.
func (s *slot) atPeak() PeakBuffer {
	return PeakBuffer{Class: s.class, Bytes: s.bytes, Place: int(s.birth)}
}

// WatchPeak starts a period, or stops watching; see [PeakWatched]. SetLayout stops watching too: a
// layout determines in advance which buffers are live at its peak.
func (a *Arena) WatchPeak(on bool) {
	if !on {
		a.peak = peakWatch{}
		return
	}
	a.peak = peakWatch{watched: true, gone: a.peak.gone[:0]}
}

// AtPeak iterates over the buffers that were live at the highest level since WatchPeak, in no particular
// order. The arena must not be used during the iteration.
func (a *Arena) AtPeak() iter.Seq[PeakBuffer] {
	return func(yield func(PeakBuffer) bool) {
		c := &a.peak
		gone, before := c.gone, c.before
		if a.meter.live > c.level { // the current level is the highest
			gone, before = nil, a.Mark()
		}
		for _, b := range gone {
			if !yield(b) {
				return
			}
		}
		for i := range a.slots {
			if s := &a.slots[i]; s.live() && s.serial < before && !yield(s.atPeak()) {
				return
			}
		}
	}
}

// examined reports whether the arena examines its bytes.
func (a *Arena) examined() bool { return invariants.Enabled && a.far == nil }

// poisoned is the byte that fills released memory, and new buffers, in a build
// with -tags invariants.
const poisoned = 0xDB

func poison(b []byte) { fill(b, poisoned) }

func fill(b []byte, with byte) {
	if len(b) == 0 {
		return
	}
	b[0] = with
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// verify examines a place that Alloc is about to use, under -tags invariants. It panics if a
// live buffer overlaps it, which is a fault of the arena. It returns an error if a byte there was touched
// before and is not poisoned, because it was then written through the view of a released buffer.
func (a *Arena) verify(off, size int64) error {
	for i := range a.slots {
		s := &a.slots[i]
		if s.live() && off < s.off+a.size(s) && s.off < off+size {
			panic(fmt.Sprintf("memory: bytes %d to %d were to be placed over handle %v, which was not released", off, off+size, Handle{uint32(i), s.generation, a.number}))
		}
	}
	end := off + size
	for _, touched := range [2][]byte{
		a.pages.mem[off:max(off, min(end, a.low))],
		a.pages.mem[min(end, max(off, a.high)):end],
	} {
		if err := a.stale(touched, poisoned); err != nil {
			return err
		}
	}
	return nil
}

// Examine returns ErrStale if bytes that belong to no buffer were written through the view of a released
// buffer: those outside the extents of scopes and, during a step, those of its part of the range. Without
// -tags invariants, or with [ArenaConfig].Range, it does nothing.
func (a *Arena) Examine() error {
	if !a.examined() || a.closed {
		return nil
	}
	for _, f := range a.free {
		end := f.off + f.size
		if err := cmp.Or(a.stale(a.pages.mem[f.off:max(f.off, min(end, a.low))], poisoned), a.stale(a.pages.mem[min(end, max(f.off, a.high)):end], poisoned)); err != nil {
			return err
		}
	}
	if a.laid.layout == nil {
		return nil
	}
	at := int64(0)
	for _, s := range append(a.placed(), span{a.laid.area, 0}) {
		if err := a.stale(a.pages.mem[at:max(at, s.off)], untouched); err != nil {
			return err
		}
		at = max(at, s.off+s.size)
	}
	return nil
}

// stale examines bytes that belong to no buffer. It returns ErrStale if one is neither poisoned nor equal to
// fresh: it was written through the view of a released buffer.
func (a *Arena) stale(free []byte, fresh byte) error {
	if n := bytes.Count(free, []byte{poisoned}); n == len(free) || fresh != poisoned && n+bytes.Count(free, []byte{fresh}) == len(free) {
		return nil
	}
	for i, b := range free {
		if b != poisoned && b != fresh {
			poison(free[i:]) // so that the next call does not report it again
			return fmt.Errorf("%w: a view was written after its release, in what was to become a buffer of %d bytes", ErrStale, len(free))
		}
	}
	return nil
}

// guard protects the pages on both sides of an extent, so that any access to them faults, or makes them
// accessible again if open is set.
func (a *Arena) guard(e extent, open bool) {
	if e.guard > 0 {
		a.pages.protect(e.off-e.guard, e.off, open)
		a.pages.protect(e.off+e.size, e.off+e.size+e.guard, open)
	}
}

// poisonFree poisons the bytes that were touched but belong to no buffer: their pages may have come back
// as zeros.
func (a *Arena) poisonFree() {
	for _, f := range a.free {
		end := f.off + f.size
		poison(a.pages.mem[f.off:max(f.off, min(end, a.low))])
		poison(a.pages.mem[min(end, max(f.off, a.high)):end])
	}
	for i := range a.regions {
		if r := &a.regions[i]; !r.released {
			for _, f := range r.free {
				poison(a.pages.mem[f.off : f.off+f.size])
			}
		}
	}
}

// poisonBack poisons the undefined bytes of buffers whose pages were restored: their padding,
// and the contents of those that are not saved.
func (a *Arena) poisonBack() {
	for i := range a.slots {
		if s := &a.slots[i]; s.live() && a.regions[s.scope].released {
			from := s.off + s.bytes
			if s.scope.lost() {
				from = s.off
			}
			poison(a.pages.mem[from : s.off+a.size(s)])
		}
	}
}

// fence is the number of bytes examined before and after a buffer when it is released.
const fence = 64

// checkSurroundings examines the bytes next to a buffer that is being released, if they belong to no
// other buffer: its padding and red zone, or, if a layout placed it, the free bytes on both sides.
func (a *Arena) checkSurroundings(i uint32, s *slot) error {
	if a.regions[s.scope].released {
		return nil
	}
	low, high := s.off, s.off+a.size(s)
	if s.mark != 0 {
		low, high = max(0, low-fence), min(a.laid.area, high+fence)
		for j := range a.slots {
			other := &a.slots[j]
			if !other.live() || other == s || other.mark == 0 {
				continue
			}
			if end := other.off + other.bytes; end <= s.off {
				low = max(low, end)
			} else if other.off >= s.off+s.bytes {
				high = min(high, other.off)
			}
		}
	}
	for at := low; at < high; at++ {
		if at == s.off {
			at += s.bytes
			if at == high {
				break
			}
		}
		if b := a.pages.mem[at]; b != poisoned && (s.mark == 0 || b != untouched) {
			return fmt.Errorf("%w: handle %v (%s, %d bytes, allocation %d): its owner or the owner of its neighbour wrote outside it, at offset %d from its start",
				ErrOverrun, Handle{i, s.generation, a.number}, s.class, s.bytes, s.serial, at-s.off)
		}
	}
	return nil
}

// untouched is the byte with which SetLayout fills the step's part when it sets it aside.
const untouched = 0xA5

// placed returns the live buffers that a layout has placed, in the order of their addresses.
func (a *Arena) placed() (live []span) {
	for i := range a.slots {
		if s := &a.slots[i]; s.mark != 0 && s.live() {
			live = append(live, span{s.off, s.bytes})
		}
	}
	slices.SortFunc(live, func(x, y span) int { return cmp.Compare(x.off, y.off) })
	return live
}

// survey counts the bytes that a step touched in its part, and examines and then poisons those that belong to
// no buffer. It returns ErrOverrun if one of these was written.
func (a *Arena) survey() error {
	l := &a.laid
	live := a.placed()
	l.touched, l.top, l.surveyed = 0, 0, true
	var fault error
	examine := func(low, high int64) {
		for at := low; at < high; at++ {
			b := a.pages.mem[at]
			if b == untouched {
				continue
			}
			l.touched++
			l.top = at + 1
			if b != poisoned && fault == nil {
				fault = a.overrun(at)
			}
		}
		poison(a.pages.mem[low:high])
	}
	at := int64(0)
	for _, s := range live {
		examine(at, s.off)
		l.touched += s.size
		l.top = s.off + s.size
		at = max(at, s.off+s.size)
	}
	examine(at, l.area)
	return fault
}

// overrun returns the error for a write to a byte outside all buffers. It names the planned buffer with the
// highest offset that is not above the byte, if there is one.
func (a *Arena) overrun(at int64) error {
	births := a.laid.layout.Allocations
	nearest := -1
	for i := range births {
		if b := &births[i]; b.Offset <= at && (nearest < 0 || b.Offset > births[nearest].Offset) {
			nearest = i
		}
	}
	if nearest < 0 {
		return fmt.Errorf("%w: a step wrote to byte %d of its part, which no buffer has", ErrOverrun, at)
	}
	b := &births[nearest]
	return fmt.Errorf("%w: a step wrote to byte %d of its part, which no buffer has now; the nearest is birth %d of its layout (%s, %d bytes at %d)",
		ErrOverrun, at, nearest, b.Class, b.Bytes, b.Offset)
}

// Touched returns the number of bytes that the last steps with a layout touched in their part of the arena,
// and the offset just past the highest of them. A byte counts as touched if a buffer covered it or if it was
// written. SetLayout(nil) determines the numbers, and the next layout resets them; known is false if there
// are none, and always in a build without -tags invariants.
func (a *Arena) Touched() (bytes, top int64, known bool) {
	return a.laid.touched, a.laid.top, a.laid.surveyed
}

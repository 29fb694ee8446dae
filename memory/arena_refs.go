package memory

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// live reports whether the slot holds a live buffer: every live buffer has a reference.
func (s *slot) live() bool { return s.plain+s.held > 0 }

// lookup returns the slot of a live buffer, or nil for any other handle.
func (a *Arena) lookup(h Handle) *slot {
	if uint(h.slot) < uint(len(a.slots)) {
		if s := &a.slots[h.slot]; s.generation == h.generation && h.arena == a.number {
			return s
		}
	}
	return nil
}

// missing returns the error for a handle without a buffer.
func (a *Arena) missing(call string, h Handle) error {
	err := ErrStale
	switch {
	case h == Handle{}:
		err = ErrNone
	case h.arena != a.number:
		err = ErrOtherArena
	}
	return fmt.Errorf("%w: %s of handle %v", err, call, h)
}

// withoutPages returns the error for a buffer whose pages are released.
func (a *Arena) withoutPages(call string, h Handle, s *slot) error {
	return fmt.Errorf("%w: %s of handle %v (%s, %d bytes): call RestorePages first", ErrReleased, call, h, s.scope, s.bytes)
}

// wrong returns the error for a call on a buffer without the required reference.
func (s *slot) wrong(err error, call string, h Handle) error {
	return fmt.Errorf("%w: %s of handle %v (%s, %d bytes; %d plain, %d held)", err, call, h, s.class, s.bytes, s.plain, s.held)
}

// Bytes returns the requested size, or 0 for a handle without a buffer.
func (a *Arena) Bytes(h Handle) int64 {
	if s := a.lookup(h); s != nil {
		return s.bytes
	}
	return 0
}

// Class returns the class given to Alloc, or the zero class for a handle without a buffer.
func (a *Arena) Class(h Handle) Class {
	if s := a.lookup(h); s != nil {
		return s.class
	}
	return 0
}

// Data returns a view of exactly the buffer's bytes. The view is invalid once the buffer is
// freed: after the last Release it may show the bytes of another buffer, and after Close an
// access may crash the process.
func (a *Arena) Data(h Handle) ([]byte, error) {
	s := a.lookup(h)
	if s == nil {
		return nil, a.missing("data", h)
	}
	if a.released > 0 && a.regions[s.scope].released {
		return nil, a.withoutPages("data", h, s)
	}
	if a.far != nil {
		return nil, fmt.Errorf("%w: data of handle %v (%s, %d bytes)", ErrFar, h, s.class, s.bytes)
	}
	return a.pages.mem[s.off : s.off+s.bytes : s.off+s.bytes], nil
}

// Extent returns the location of a buffer: the offset of its first byte from the start of the
// range, and its size in bytes. It returns the same errors as Data, except ErrFar.
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

// Hash returns a hash of the buffer's contents and size.
func (a *Arena) Hash(h Handle) (uint64, error) {
	s := a.lookup(h)
	if s == nil {
		return 0, a.missing("hash", h)
	}
	data, err := a.contents(s)
	sum := sha256.Sum256(data)
	return binary.LittleEndian.Uint64(sum[:]), err
}

// contents returns a view of a buffer's bytes, or a copy if its range is far.
func (a *Arena) contents(s *slot) ([]byte, error) {
	if a.far == nil {
		return a.pages.mem[s.off : s.off+s.bytes], nil
	}
	data := make([]byte, s.bytes)
	_, err := a.far.ReadAt(data, s.off)
	return data, err
}

// Retain adds a plain reference for the caller.
func (a *Arena) Retain(h Handle) error {
	s := a.lookup(h)
	if s == nil {
		return a.missing("retain", h)
	}
	s.plain++
	return nil
}

// Release releases a plain reference. If it was the last reference of either kind, the buffer
// is freed: Release returns its size in bytes, and h is stale.
func (a *Arena) Release(h Handle) (freed int64, err error) {
	s := a.lookup(h)
	switch {
	case s == nil:
		return 0, a.missing("release", h)
	case s.plain == 0:
		return 0, s.wrong(ErrNoPlain, "release", h)
	case s.plain+s.held > 1:
		s.plain--
		return 0, nil
	}
	return a.freeLast(h.slot, s)
}

// freeLast frees a buffer whose last reference is being released. Under -tags invariants, it returns
// ErrOverrun if bytes next to the buffer were written.
func (a *Arena) freeLast(i uint32, s *slot) (freed int64, err error) {
	if a.examined() {
		err = a.checkSurroundings(i, s)
	} else if s.mark != 0 && a.laid.layout != nil {
		s.plain, s.held = 0, 0
		return a.end(i, s), nil
	}
	return a.take(i, s), err
}

// Hold converts one plain reference into a held one.
func (a *Arena) Hold(h Handle) (held int64, err error) {
	held, _, err = a.HoldWithClass(h)
	return held, err
}

// HoldWithClass is like Hold, but also returns the class.
func (a *Arena) HoldWithClass(h Handle) (held int64, class Class, err error) {
	s := a.lookup(h)
	if s == nil {
		return 0, 0, a.missing("hold", h)
	}
	if s.plain == 0 {
		return 0, 0, s.wrong(ErrNoPlain, "hold", h)
	}
	s.plain--
	if s.held++; s.held == 1 {
		held = s.bytes
	}
	return held, s.class, nil
}

// UnholdAndRelease combines Unhold and Release.
func (a *Arena) UnholdAndRelease(h Handle) (unheld, freed int64, class Class, err error) {
	s := a.lookup(h)
	if s == nil {
		return 0, 0, 0, a.missing("unhold", h)
	}
	if s.held == 0 {
		return 0, 0, 0, s.wrong(ErrNotHeld, "unhold", h)
	}
	class = s.class
	if s.held--; s.held > 0 {
		return 0, 0, class, nil
	}
	if unheld = s.bytes; s.plain == 0 {
		freed, err = a.freeLast(h.slot, s)
	}
	return unheld, freed, class, err
}

// Unhold converts one held reference into a plain one.
func (a *Arena) Unhold(h Handle) (unheld int64, err error) {
	s := a.lookup(h)
	if s == nil {
		return 0, a.missing("unhold", h)
	}
	if s.held == 0 {
		return 0, s.wrong(ErrNotHeld, "unhold", h)
	}
	s.held--
	s.plain++
	if s.held > 0 {
		return 0, nil
	}
	return s.bytes, nil
}

// size returns the bytes of the range that a buffer covers.
func (a *Arena) size(s *slot) int64 {
	if s.mark != 0 {
		return s.bytes
	}
	return a.footprint(s.bytes)
}

// end frees the buffer in slot i and makes the slot available again. A buffer placed by the current
// layout needs nothing more.
func (a *Arena) end(i uint32, s *slot) int64 {
	a.laid.marks -= s.mark
	if a.laid.unused != 0 && s.mark != 0 {
		a.laid.unused -= a.laid.all[s.birth].Bytes - s.bytes
	}
	a.meter.Free(s.class, s.bytes)
	s.generation++
	// No handle has generation 0. A slot that has used up its generations is retired, so that a handle to
	// its first buffer never becomes valid again.
	if s.generation != 0 {
		s.next, a.unused = a.unused, i
	}
	return s.bytes
}

// take frees a buffer and its place, regardless of its references.
func (a *Arena) take(i uint32, s *slot) int64 {
	s.plain, s.held = 0, 0
	scope := s.scope
	if a.examined() && !a.regions[scope].released {
		poison(a.pages.mem[s.off : s.off+a.size(s)])
	}
	if p := &a.peak; p.watched { // the meter still counts the buffer
		if a.meter.live > p.level {
			p.level, p.before, p.gone = a.meter.live, a.Mark(), p.gone[:0]
		}
		if s.serial < p.before {
			p.gone = append(p.gone, s.atPeak())
		}
	}
	bytes := a.end(i, s)
	switch {
	case scope != StepScope:
		s.scope = StepScope
		r := &a.regions[scope]
		r.live -= bytes
		if scope == Weights && !r.released {
			a.free.give(s.off, a.size(s))
			break
		}
		r.free.give(s.off, a.size(s)) // the region keeps the space while its pages are released
		a.shrink(scope)
	case s.mark == 0:
		a.free.give(s.off, a.size(s))
	case a.laid.layout == nil:
		a.laid.left--
		a.vacate()
	}
	return bytes
}

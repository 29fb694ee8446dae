package memory

import "fmt"

// live reports whether the slot has a tenant: every live buffer has a reference.
func (s *slot) live() bool { return s.plain+s.held > 0 }

// lookup returns the slot of a live buffer, nil for any other handle.
func (a *Arena) lookup(h Handle) *slot {
	if uint(h.slot) < uint(len(a.slots)) {
		if s := &a.slots[h.slot]; s.generation == h.generation && h.arena == a.number {
			return s
		}
	}
	return nil
}

// missing says why a handle has no slot.
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

// withoutPages says that the pages of a buffer are released.
func (a *Arena) withoutPages(call string, h Handle, s *slot) error {
	return fmt.Errorf("%w: %s of handle %v (%s, %d bytes): RestorePages first", ErrReleased, call, h, s.scope, s.bytes)
}

// wrong says why a reference that a call needs is not there.
func (s *slot) wrong(err error, call string, h Handle) error {
	return fmt.Errorf("%w: %s of handle %v (%s, %d bytes; %d plain, %d held)", err, call, h, s.class, s.bytes, s.plain, s.held)
}

// Bytes returns the size that was asked for, 0 for a handle without a buffer.
func (a *Arena) Bytes(h Handle) int64 {
	if s := a.lookup(h); s != nil {
		return s.bytes
	}
	return 0
}

// Class returns the class given at Alloc, the zero class for a handle without a
// buffer.
func (a *Arena) Class(h Handle) Class {
	if s := a.lookup(h); s != nil {
		return s.class
	}
	return 0
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

// Release releases a plain reference. With the last reference of either kind the
// buffer is freed: its bytes are returned and h is stale.
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
	return a.last(h.slot, s)
}

// last ends the last reference to a buffer.
func (a *Arena) last(i uint32, s *slot) (freed int64, err error) {
	if a.examined() {
		err = a.fenced(i, s)
	} else if s.mark != 0 && a.laid.layout != nil {
		s.plain, s.held = 0, 0
		return a.end(i, s), nil
	}
	return a.take(i, s), err
}

// Hold turns one plain reference into a held one.
func (a *Arena) Hold(h Handle) (held int64, err error) {
	held, _, err = a.Enter(h)
	return held, err
}

// Enter is Hold, with the class.
func (a *Arena) Enter(h Handle) (held int64, class Class, err error) {
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

// Leave is Yield and Release.
func (a *Arena) Leave(h Handle) (yielded, freed int64, class Class, err error) {
	s := a.lookup(h)
	if s == nil {
		return 0, 0, 0, a.missing("yield", h)
	}
	if s.held == 0 {
		return 0, 0, 0, s.wrong(ErrNotHeld, "yield", h)
	}
	class = s.class
	if s.held--; s.held > 0 {
		return 0, 0, class, nil
	}
	if yielded = s.bytes; s.plain == 0 {
		freed, err = a.last(h.slot, s)
	}
	return yielded, freed, class, err
}

// Yield turns one held reference into a plain one.
func (a *Arena) Yield(h Handle) (yielded int64, err error) {
	s := a.lookup(h)
	if s == nil {
		return 0, a.missing("yield", h)
	}
	if s.held == 0 {
		return 0, s.wrong(ErrNotHeld, "yield", h)
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

// end frees the buffer in slot i and makes the slot ready for the next one. For a buffer
// that the layout in force has placed this is all.
func (a *Arena) end(i uint32, s *slot) int64 {
	a.laid.marks -= s.mark
	a.meter.Free(s.class, s.bytes)
	s.generation++
	// Generation 0 is nobody's: a slot that comes round to it is retired, lest a
	// handle of its first tenant become valid again.
	if s.generation != 0 {
		s.next, a.unused = a.unused, i
	}
	return s.bytes
}

// take frees a buffer, whatever references there are to it, and its place.
func (a *Arena) take(i uint32, s *slot) int64 {
	s.plain, s.held = 0, 0
	scope := s.scope
	if a.examined() && !a.regions[scope].released {
		poison(a.pages.mem[s.off : s.off+a.size(s)])
	}
	if a.climb.watched {
		a.climb.released(s, &a.meter)
	}
	bytes := a.end(i, s)
	switch {
	case scope != StepScope:
		s.scope = StepScope
		a.regions[scope].live -= bytes
		a.leave(scope, s.off, a.size(s))
	case s.mark == 0:
		a.free.give(s.off, a.size(s))
	case a.laid.layout == nil:
		a.laid.left--
		a.vacate()
	}
	return bytes
}

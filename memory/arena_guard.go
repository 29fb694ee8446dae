package memory

import (
	"cmp"
	"fmt"
	"slices"
)

// This file has an effect under -tags invariants alone.

// guard makes the pages on both sides of an extent such that touching them is a fault, or
// plain memory again.
func (a *Arena) guard(e extent, open bool) {
	if e.guard > 0 {
		a.pages.protect(e.off-e.guard, e.off, open)
		a.pages.protect(e.off+e.size, e.off+e.size+e.guard, open)
	}
}

// poisonFree poisons all that was touched and belongs to no buffer, where pages were
// taken back empty.
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

// poisonBack poisons what is undefined of buffers whose pages were taken back: what lies
// behind them, and gradients.
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

// fence is as far as a buffer's surroundings are examined at its release, in bytes.
const fence = 64

// fenced examines the bytes next to a buffer that is released, as far as they are nobody's: what
// the alignment and the red zone have left behind it, and for one that a layout placed
// what lies free on both sides.
func (a *Arena) fenced(i uint32, s *slot) error {
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
			where := fmt.Sprintf("%d bytes before its start", s.off-at)
			if at >= s.off {
				where = fmt.Sprintf("%d bytes behind its end", at-s.off-s.bytes+1)
			}
			return fmt.Errorf("%w: handle %v (%s, %d bytes, allocation %d): something was written %s, by whom it belongs to or by its neighbour",
				ErrOverrun, Handle{i, s.generation, a.number}, s.class, s.bytes, s.serial, where)
		}
	}
	return nil
}

// untouched is the byte that fills the step's part when it is laid.
const untouched = 0xA5

// survey counts what a step has touched of its part, and examines what no buffer has.
// The step's part is poisoned afterwards.
func (a *Arena) survey() error {
	l := &a.laid
	var live []span
	for i := range a.slots {
		if s := &a.slots[i]; s.mark != 0 && s.live() {
			live = append(live, span{s.off, s.bytes})
		}
	}
	slices.SortFunc(live, func(x, y span) int { return cmp.Compare(x.off, y.off) })
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

// overrun names the planned buffer that lies nearest below a byte which nobody has.
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

// Touched returns what the last step with a layout has touched of its part of the arena:
// how many bytes, and the end of the highest. A byte is touched when a buffer covers it,
// or when somebody writes to it. A build without -tags invariants does not know.
func (a *Arena) Touched() (bytes, top int64, known bool) {
	return a.laid.touched, a.laid.top, a.laid.surveyed
}

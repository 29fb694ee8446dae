package memory

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// LastGeneration gives the slot of h its last generation, which would otherwise take 2^32-2
// releases, and returns the handle of h's buffer in it.
func (a *Arena) LastGeneration(h Handle) Handle {
	a.slots[h.slot].generation = math.MaxUint32
	return Handle{h.slot, math.MaxUint32, a.number}
}

// Slots returns the number of slots, including retired ones.
func (a *Arena) Slots() int { return len(a.slots) - 1 }

// Forget breaks the arena: the bytes of h count as free although h is live.
func (a *Arena) Forget(h Handle) {
	s := &a.slots[h.slot]
	a.free.give(s.off, a.padded(s.bytes))
}

// Mark returns the mark of a planned buffer.
func Mark(offset, bytes int64) uint64 { return mark(offset, bytes) }

// Obstruct breaks the arena: a live buffer overlaps its first bytes.
func (a *Arena) Obstruct(bytes int64) {
	a.slots = append(a.slots, slot{bytes: bytes, plain: 1})
}

// Move breaks the arena: it changes the offset of h.
func (a *Arena) Move(h Handle, off int64) { a.slots[h.slot].off = off }

// GiveNothing breaks the arena: it adds a gap of no bytes at the end.
func (a *Arena) GiveNothing() { a.free = append(a.free, span{off: a.capacity}) }

// Check verifies the invariants of the arena: buffers and gaps cover the range exactly once, so
// that no buffer overlaps another one, neighboring gaps are merged, and the book is the sum of
// the buffers.
func (a *Arena) Check() error {
	if a.closed {
		return nil
	}
	type part struct {
		span
		owner string
	}
	parts := make([]part, 0, len(a.slots)+len(a.free))
	var placed []part // by the layout, within the step's part
	var marks uint64
	var sum Meter
	var scopes [NumScopes]int64
	for i := range a.slots {
		s := &a.slots[i]
		if !s.live() {
			continue
		}
		sum.Alloc(s.class, s.bytes)
		p := part{span{s.off, a.size(s)}, "handle " + Handle{uint32(i), s.generation, a.number}.String()}
		scopes[s.scope] += s.bytes
		if s.mark != 0 {
			placed = append(placed, p)
			marks += s.mark
		} else {
			parts = append(parts, p)
		}
	}
	slices.SortFunc(placed, func(x, y part) int { return cmp.Compare(x.off, y.off) })
	for i, p := range placed {
		if p.off+p.size > a.laid.area || i > 0 && placed[i-1].off+placed[i-1].size > p.off {
			return fmt.Errorf("memory: %s covers bytes %d to %d, over the end of the step's part (%d) or over another buffer", p.owner, p.off, p.off+p.size, a.laid.area)
		}
	}
	if marks != a.laid.marks {
		return fmt.Errorf("memory: the sum of marks is %#x, the marks of the buffers sum to %#x", a.laid.marks, marks)
	}
	if a.laid.area > 0 {
		parts = append(parts, part{span{0, a.laid.area + a.laid.guard}, "the step's part"})
	}
	for i := range a.regions {
		r := &a.regions[i]
		for _, f := range r.free {
			parts = append(parts, part{f, "a gap of " + Scope(i).String()})
		}
		for _, e := range r.extents {
			if e.guard > 0 {
				parts = append(parts, part{span{e.off - e.guard, e.guard}, "a guard"}, part{span{e.off + e.size, e.guard}, "a guard"})
			}
		}
		if i > 0 && r.live != scopes[i] {
			return fmt.Errorf("memory: scope %s has %d bytes live, its buffers have %d", Scope(i), r.live, scopes[i])
		}
	}
	for i, f := range a.free {
		if i > 0 && a.free[i-1].off+a.free[i-1].size == f.off {
			return fmt.Errorf("memory: the gaps on both sides of offset %d are not merged", f.off)
		}
		parts = append(parts, part{f, "a gap"})
	}
	slices.SortFunc(parts, func(x, y part) int { return cmp.Compare(x.off, y.off) })
	end := int64(0)
	for _, p := range parts {
		if p.off != end || p.size <= 0 {
			return fmt.Errorf("memory: %s covers bytes %d to %d, but the part below it ends at %d", p.owner, p.off, p.off+p.size, end)
		}
		end += p.size
	}
	if end != a.capacity {
		return fmt.Errorf("memory: buffers and gaps end at %d, the range at %d", end, a.capacity)
	}
	if sum.live != a.meter.live || sum.classes != a.meter.classes {
		return fmt.Errorf("memory: the book says %d bytes (%v), the buffers have %d (%v)", a.meter.live, a.meter.classes, sum.live, sum.classes)
	}
	return nil
}

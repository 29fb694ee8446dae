package memory

import (
	"cmp"
	"fmt"
	"slices"
)

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

// Check proves the arena: buffers and gaps cover the range exactly once, so
// that no buffer lies over another one, neighbouring gaps are merged, and the
// book is the sum of the buffers. It is for tests and for doubts; it allocates.
// A build with -tags invariants also looks for overlaps at every Alloc.
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
		return fmt.Errorf("memory: the sum of marks is %#x, that of the buffers %#x", a.laid.marks, marks)
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

// verify examines a place that Alloc is about to use, under -tags invariants.
// A live buffer there is a fault of the arena, and a panic. A byte there that
// was touched before and is not poisoned was written through a view whose
// buffer was released, and is an error.
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

// stale examines bytes that belong to no buffer: one that is neither poisoned nor, in the
// step's part, fresh was written through a view whose buffer was released.
func (a *Arena) stale(free []byte, fresh byte) error {
	for i, b := range free {
		if b != poisoned && b != fresh {
			poison(free[i:]) // so that it is reported once
			return fmt.Errorf("%w: a view was written after its release, in what was to become a buffer of %d bytes", ErrStale, len(free))
		}
	}
	return nil
}

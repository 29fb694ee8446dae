package memory

import (
	"cmp"
	"fmt"
	"slices"
)

// poisoned is the byte that fills released memory, and new buffers, in a build
// with -tags invariants.
const poisoned = 0xDB

func poison(b []byte) {
	for i := range b {
		b[i] = poisoned
	}
}

// Check proves the arena: buffers and gaps cover the range exactly once, so
// that no buffer lies over another one, neighbouring gaps are merged, and the
// book is the sum of the buffers. It is for tests and for doubts; it allocates.
// A build with -tags invariants looks for overlaps at every Alloc besides.
func (a *Arena) Check() error {
	if a.closed {
		return nil
	}
	type part struct {
		span
		owner string
	}
	parts := make([]part, 0, len(a.slots)+len(a.free))
	var sum Meter
	for i := range a.slots {
		if s := &a.slots[i]; s.live() {
			sum.Alloc(s.class, s.bytes)
			parts = append(parts, part{span{s.off, a.padded(s.bytes)}, "handle " + Handle{uint32(i), s.generation}.String()})
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
		if s.live() && off < s.off+a.padded(s.bytes) && s.off < off+size {
			panic(fmt.Sprintf("memory: bytes %d to %d were to be placed over handle %v, which was not released", off, off+size, Handle{uint32(i), s.generation}))
		}
	}
	end := off + size
	for _, touched := range [2][]byte{
		a.pages.mem[off:max(off, min(end, a.low))],
		a.pages.mem[min(end, max(off, a.high)):end],
	} {
		for i, b := range touched {
			if b != poisoned {
				poison(touched[i:]) // so that it is reported once
				return fmt.Errorf("%w: a view was written after its release, in what was to become a buffer of %d bytes", ErrStale, size)
			}
		}
	}
	return nil
}

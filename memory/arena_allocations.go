package memory

import (
	"math/bits"
	"slices"
)

// birth is an allocation of a layout, with what the arena knows about it.
type birth struct {
	Allocation
	// free is the sum of the marks of what was live when its place was last
	// found free. While the sum is the same, so is what is live, and nothing need be looked
	// at; 0 is nothing.
	free uint64
	mark uint64 // of its place
	// number is its index in the layout, where it is again when Settle returns.
	number int32
}

// births returns the allocations of a layout, of which nothing is known yet, in room that may be
// used again.
func births(layout *Layout, room []birth) []birth {
	all := slices.Grow(room[:0], len(layout.Allocations))
	for i, b := range layout.Allocations {
		all = append(all, birth{Allocation: b, mark: mark(b.Offset, b.Bytes), number: int32(i)})
	}
	return all
}

// mark is a number for a range of an arena, never 0. The sum of the marks of all live
// buffers tells in one comparison whether the same buffers are live as at another time. A
// buffer has the mark of its allocation in the layout, however few bytes it asked for.
//
// It is the folded product of wyhash: sums of a linear function would not tell two
// buffers that swapped their sizes.
func mark(offset, bytes int64) uint64 {
	high, low := bits.Mul64(uint64(offset)^0x9e3779b97f4a7c15, uint64(bytes)^0xbf58476d1ce4e5b9)
	return high ^ low | 1
}

// vacant looks for a live buffer where the layout has a new one. A buffer that asked for
// fewer bytes than the layout has for it is in the way with all of them: the next may
// need them. The arena looks where other buffers are live than when it last looked, and
// under -tags invariants always.
func (a *Arena) vacant(b *birth, bytes int64) error {
	end := b.Offset + b.Bytes
	for i := range a.slots {
		s := &a.slots[i]
		if !s.live() {
			continue
		}
		size := a.size(s)
		if s.mark != 0 {
			size = a.laid.all[s.birth].Bytes
		}
		if s.off < end && b.Offset < s.off+size {
			e := a.refused(ErrOverlap, b.Class, bytes)
			e.Owner = a.info(uint32(i), s)
			return e
		}
	}
	if a.examined() {
		if err := a.stale(a.pages.mem[b.Offset:end], untouched); err != nil {
			return err
		}
		poison(a.pages.mem[b.Offset:end])
	}
	return nil
}

package memory

import "math"

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

package placement

import (
	"context"
	"math"
	"math/bits"
)

// noLimit is the end of a free range that has nothing above it.
const noLimit = math.MaxInt64

// fit selects the hole for a buffer.
type fit uint8

const (
	firstFit fit = iota // the lowest
	bestFit             // the smallest, and of these the lowest
)

// place lays out buffers one after the other around the fixed ones, each in the hole selected
// by how, and stores their offsets. It returns the height, or noLimit if ctx ended first.
func (g *grid) place(ctx context.Context, o *occupied, order []int32, how fit, offsets []int64) (height int64) {
	o.clear()
	for i, at := range g.fixed {
		if at >= 0 {
			offsets[i] = at
			o.take(g.spans[i], extent{at, at + g.size(int32(i))})
			height = max(height, at+g.size(int32(i)))
		}
	}
	for k, i := range order {
		if k%16 == 15 && ctx.Err() != nil { // with many long-lived buffers, placing one takes milliseconds
			return noLimit
		}
		if g.fixed != nil && g.fixed[i] >= 0 {
			continue
		}
		b := &g.problem.Buffers[i]
		taken := o.taken(g.spans[i])
		at, end := taken.hole(0, b.Size, b.Align)
		if how == bestFit {
			at = tightest(taken, at, end, b)
		}
		offsets[i] = at
		o.take(g.spans[i], extent{at, at + b.Size})
		height = max(height, at+b.Size)
	}
	return height
}

// quick lays out buffers in one sweep through time: a buffer reuses the offset of a dead one of
// its size class, or is placed on top. It does not use gaps. It is for problems that are too large for
// place to finish in the available time.
func (g *grid) quick(offsets []int64) (height int64) {
	room := int64(math.MaxInt64)
	for i := range g.problem.Buffers {
		b := &g.problem.Buffers[i]
		room -= b.Size + b.Align
	}
	roomy := room > math.MaxInt64/2 // even with rounded sizes, all buffers fit end to end
	type class struct{ size, align int64 }
	of := func(b *Buffer) class {
		if !roomy {
			return class{b.Size, b.Align}
		}
		return class{alignUp(b.Size, 1<<max(bits.Len64(uint64(b.Size))-4, 0)), b.Align} // wastes at most an eighth
	}
	free := map[class][]int64{} // the free offsets
	top := int64(0)
	for _, c := range g.problem.changes() {
		b := &g.problem.Buffers[c.buffer]
		switch k := of(b); {
		case c.birth && c.time == b.Lower:
			if last := len(free[k]) - 1; last >= 0 {
				offsets[c.buffer], free[k] = free[k][last], free[k][:last]
			} else {
				offsets[c.buffer] = alignUp(top, b.Align)
				top = offsets[c.buffer] + k.size
			}
			height = max(height, offsets[c.buffer]+b.Size)
		case !c.birth && c.time == b.Upper:
			free[k] = append(free[k], offsets[c.buffer])
		}
	}
	return height
}

// tightest returns the offset of the hole that would leave the least space above a buffer. The unbounded
// hole at the top is the last resort.
func tightest(taken *sweep, at, end int64, b *Buffer) (best int64) {
	best = at
	left := end - at
	for end != noLimit && left > b.Size {
		if at, end = taken.hole(end, b.Size, b.Align); end != noLimit && end-at < left {
			best, left = at, end-at
		}
	}
	return best
}

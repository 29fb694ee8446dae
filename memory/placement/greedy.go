package placement

import (
	"context"
	"math"
	"math/bits"
)

// noLimit is the end of free bytes that have nothing above them.
const noLimit = math.MaxInt64

// fit is which of the holes a buffer goes into.
type fit uint8

const (
	firstFit fit = iota // the lowest
	bestFit             // the one that the buffer fills best, of these the lowest
)

// place lays out buffers one after the other, each at the hole that fit says, around
// those that are fixed. It returns the height: noLimit where ctx ended before that.
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
		if k%16 == 15 && ctx.Err() != nil { // Among many that live long a buffer takes milliseconds.
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

// quick lays out buffers in one walk through time: a buffer goes
// where one of its size class was that has died, or else on top. Gaps are not used. It is for
// problems that are too large for place in the time that there is.
func (g *grid) quick(offsets []int64) (height int64) {
	room := int64(math.MaxInt64)
	for i := range g.problem.Buffers {
		b := &g.problem.Buffers[i]
		room -= b.Size + b.Align
	}
	roomy := room > math.MaxInt64/2 // Rounded sizes fit end to end too.
	type class struct{ size, align int64 }
	of := func(b *Buffer) class {
		if !roomy {
			return class{b.Size, b.Align}
		}
		return class{alignUp(b.Size, 1<<max(bits.Len64(uint64(b.Size))-4, 0)), b.Align} // An eighth is lost at most.
	}
	free := map[class][]int64{} // the offsets where nothing lies
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

// tightest returns where the hole is that leaves the least free above a buffer. The
// one that is open at the top is the last choice.
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

package placement

import (
	"context"
	"math"
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
			o.take(g.of(int32(i)), extent{at, at + g.size(int32(i))})
			height = max(height, at+g.size(int32(i)))
		}
	}
	for k, i := range order {
		if k%256 == 255 && ctx.Err() != nil {
			return noLimit
		}
		if g.fixed != nil && g.fixed[i] >= 0 {
			continue
		}
		b := &g.problem.Buffers[i]
		taken := o.look(g.of(i))
		at, end := taken.hole(0, b.Size, b.Align)
		if how == bestFit {
			at = tightest(taken, at, end, b)
		}
		offsets[i] = at
		o.take(g.of(i), extent{at, at + b.Size})
		height = max(height, at+b.Size)
	}
	return height
}

// tightest returns where the hole is that leaves the least free above a buffer. The
// one that is open at the top is the last choice.
func tightest(taken *walk, at, end int64, b *Buffer) (best int64) {
	best = at
	left := end - at
	for end != noLimit && left > b.Size {
		if at, end = taken.hole(end, b.Size, b.Align); end != noLimit && end-at < left {
			best, left = at, end-at
		}
	}
	return best
}

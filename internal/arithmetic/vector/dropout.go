package vector

import (
	"math"
	"math/bits"
)

// Dropout sets y[i] to x[i]/keep, or to 0 if draw i is below limit. The draws are those of block
// and of the blocks after it, four per block. y may be x. The bits are the same in every set.
func (s Set) Dropout(y, x []float32, draws Philox, block uint64, limit uint32, keep float32) {
	x = x[:len(y)]
	done := s.whole(len(y))
	if done > 0 {
		dropout(s, first(y), first(x), done, block, draws.Seed, draws.Stream, limit, keep)
	}
	y, x = y[done:], x[done:]
	for block += uint64(done / 4); len(y) > 0; block++ {
		a, b, c, d := draws.Draw(block)
		u := [4]uint32{a, b, c, d}
		n := min(4, len(y))
		for i, v := range x[:n] {
			y[i] = keepFrom(u[i&3], limit, v/keep)
		}
		y, x = y[n:], x[n:]
	}
}

// keepFrom returns v if draw is at least limit, and 0 otherwise. It is branch-free, because a
// branch on a draw cannot be predicted.
func keepFrom(draw, limit uint32, v float32) float32 {
	_, below := bits.Sub32(draw, limit, 0)
	return math.Float32frombits(math.Float32bits(v) & (below - 1))
}

package vector

import (
	"math"
	"math/bits"
)

// Philox is Philox4x32-10 (Salmon et al. 2011) with Seed, low word first, as its
// key, and as its counter the number of a block and Stream, likewise.
type Philox struct {
	Seed, Stream uint64
}

// Draw returns the four draws of a block.
func (p Philox) Draw(block uint64) (a, b, c, d uint32) {
	const m0, m1 = 0xd2511f53, 0xcd9e8d57
	c0, c1 := uint32(block), uint32(block>>32)
	c2, c3 := uint32(p.Stream), uint32(p.Stream>>32)
	k0, k1 := uint32(p.Seed), uint32(p.Seed>>32)
	for range 10 {
		h0, l0 := bits.Mul32(m0, c0)
		h1, l1 := bits.Mul32(m1, c2)
		c0, c1, c2, c3 = h1^c1^k0, l1, h0^c3^k1, l0
		k0 += 0x9e3779b9
		k1 += 0xbb67ae85
	}
	return c0, c1, c2, c3
}

// Dropout sets y[i] to x[i]/keep, or to 0 where draw i is below limit: the draws of
// block and of those after it, four of each. y may be x. The bits are the same in
// every set.
func (s Set) Dropout(y, x []float32, draws Philox, block uint64, limit uint32, keep float32) {
	x = x[:len(y)]
	done := s.dropoutGroups(y, x, draws, block, limit, keep)
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

// keepFrom returns v where draw is at least limit, else 0. It has no branch: none
// could foresee a draw.
func keepFrom(draw, limit uint32, v float32) float32 {
	_, below := bits.Sub32(draw, limit, 0)
	return math.Float32frombits(math.Float32bits(v) & (below - 1))
}

package vector

import "math/bits"

// Philox is Philox4x32-10 (Salmon et al. 2011). Its key is Seed, low word first, and its
// counter is the number of a block followed by Stream, each with its low word first.
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

// Draws sets dst, whose length is a multiple of 4, to the draws of the four blocks that begin at
// block, then those of the four that begin at block+step, and so on. With a step of 4 the blocks
// are consecutive. The bits are the same in every set.
func (s Set) Draws(dst []uint32, philox Philox, block, step uint64) {
	done := s.whole(len(dst))
	if done > 0 {
		draws(s, &dst[0], done/(16*int(s)), block, step, philox.Seed, philox.Stream)
	}
	for i := done; i < len(dst); i += 4 {
		dst[i], dst[i+1], dst[i+2], dst[i+3] = philox.Draw(block + uint64(i/16)*step + uint64(i/4%4))
	}
}

// whole returns how many of n draws form whole groups for the assembly, which takes two registers
// at a time.
func (s Set) whole(n int) int {
	if s == Portable {
		return 0
	}
	return n &^ (16*int(s) - 1)
}

package kernels

import (
	"math"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// Draw returns four draws of 32 random bits, for elements 4·block to 4·block+3 of the key. It is
// the only source of randomness on every device, so that a mask is the same everywhere (L9). The
// generator is Philox4x32-10 (Salmon et al. 2011). Its key is Seed, low word first. Its counter
// is block, low word first, followed by
//
//	mix(mix(mix(Op) ^ Step) ^ Microbatch)
//
// low word first, where mix is the finalizer of splitmix64. Each application of mix is a
// bijection, so two microbatches with the same step, operation and seed never share a counter.
func (k Key) Draw(block uint64) [4]uint32 {
	a, b, c, d := k.philox().Draw(block)
	return [4]uint32{a, b, c, d}
}

// Stream returns the upper half of the counter of a key's draws, for devices that compute the
// draws themselves.
func (k Key) Stream() uint64 { return mix(mix(mix(k.Op)^uint64(k.Step)) ^ uint64(k.Microbatch)) }

// philox returns the generator of the key.
func (k Key) philox() vector.Philox { return vector.Philox{Seed: k.Seed, Stream: k.Stream()} }

// mix is the finalizer of splitmix64 (Steele et al. 2014; Vigna).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// normals converts a block's draws to normally distributed numbers (Box and Muller 1958):
// elements 0 and 1 are the cosine and sine results for one pair of draws, and 2 and 3 those for
// the other. The uniform numbers are (draw + 1/2) / 2^32, which is never 0, so that no result
// exceeds 6.8 in magnitude.
func normals(u [4]uint32) (z [4]float64) {
	for i := 0; i < 4; i += 2 {
		radius := math.Sqrt(-2 * math.Log((float64(u[i])+0.5)*0x1p-32))
		sin, cos := math.Sincos(2 * math.Pi * (float64(u[i+1]) + 0.5) * 0x1p-32)
		z[i], z[i+1] = radius*cos, radius*sin
	}
	return z
}

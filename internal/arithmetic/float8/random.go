package float8

import (
	"math"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// Stochastic rounding uses number i%4 of block i/4 of the draws for element i of a source, no
// matter where the element is stored.

// fill sets dst to the random numbers of the elements that begin at index from.
func (s Set) fill(dst []uint32, draws *vector.Philox, from int) {
	const quad = 16
	if from%4 == 0 {
		whole := len(dst) &^ (quad - 1)
		vector.Set(s).Draws(dst[:whole], *draws, uint64(from/4), 4)
		dst, from = dst[whole:], from+whole
	}
	for len(dst) > 0 {
		var u [quad]uint32
		vector.Set(s).Draws(u[:], *draws, uint64(from/4), 4)
		n := copy(dst, u[from%4:])
		dst, from = dst[n:], from+n
	}
}

// fillRows sets n rows of dst, which are lanes numbers apart, to the random numbers of n rows of k elements of
// a matrix. The first element has the index from, and the rows are stride elements apart.
func (s Set) fillRows(dst []uint32, n, k int, draws *vector.Philox, from, stride int) {
	if from%4 == 0 && stride%4 == 0 {
		vector.Set(s).Draws(dst[:n*lanes], *draws, uint64(from/4), uint64(stride/4))
		return
	}
	for i := range n {
		s.fill(dst[i*lanes:][:k], draws, from+i*stride)
	}
}

// encodeEachRandom is encodeEach with a random number for each element.
func encodeEachRandom(dst []byte, src []float32, random []uint32, f *Format, scale float32) (t Tally) {
	dropped := uint(mantissaBits-f.Mantissa) & 31
	least := exponentBias + 1 - f.Bias // the exponent of the smallest normal value
	normal := uint32(least) << mantissaBits
	offset := uint32(exponentBias-f.Bias) << f.Mantissa
	most, sign := uint32(f.Max), f.Sign
	var amax uint32
	var underflowed uint64
	dst, random = dst[:len(src)], random[:len(src)]
	for i, x := range src {
		scaled := math.Float32bits(x * scale)
		before, a := math.Float32bits(x)&^signBit, scaled&^signBit
		amax = max(amax, before)
		code := (a+random[i]>>(32-dropped))>>dropped - offset
		below := min(dropped+uint(max(0, least-int(a>>mantissaBits))), 63)
		steps := uint64(a&(1<<mantissaBits-1)|1<<mantissaBits) << 32 >> below // magnitude in units of the format, times 2^32
		small := uint32((steps + uint64(random[i])) >> 32)
		if a < normal {
			code = small
		}
		if before >= infinity || a >= infinity || code >= most {
			dst[i] = f.Stochastic(x*scale, random[i])
			t.note(x, x*scale, dst[i], f)
			continue
		}
		underflowed += (uint64(code) - 1) >> 63 &^ ((uint64(before) - 1) >> 63)
		dst[i] = byte(code) | byte(scaled>>31)*sign
	}
	t.Amax = max(t.Amax, amax)
	t.Underflowed += int(underflowed)
	return t
}

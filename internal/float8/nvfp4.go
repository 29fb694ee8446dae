package float8

import "math"

// NVFP4 scales at two levels: a float32 for the tensor, and an E4M3 for 16 elements of
// E2M1, two in a byte, the first in the low half.

// TensorNV returns the scale of a tensor by which the scales of its blocks fill E4M3 and
// its elements E2M1: 448·6/amax. It is 1 where amax is zero or not finite.
func TensorNV(amax float32) float32 {
	return ScaleOf(amax, E4M3.Greatest()*E2M1.Greatest(), 0, false)
}

// EncodeNV encodes blocks of 16 elements. The order of the products is NVIDIA's, and
// counts to the bit: a block's scale is E4M3 of amax·(tensor·(1/6)), its elements are
// multiplied with 1/(scale·(1/tensor)). Random rounds stochastically, a number for each
// element; nil rounds to nearest.
func EncodeNV(dst, scales []byte, src []float32, tensor float32, random func(element int) uint32) Tally {
	if random == nil {
		return encodeNV(dst, scales, src, tensor, nil)
	}
	numbers := make([]uint32, len(src))
	for i := range numbers {
		numbers[i] = random(i)
	}
	return encodeNV(dst, scales, src, tensor, numbers)
}

// encodeNV is EncodeNV, where the last block is of what is left.
func encodeNV(dst, scales []byte, src []float32, tensor float32, random []uint32) (t Tally) {
	const sixth = 1.0 / 6
	for b := range blocksOf(len(src), BlockNV) {
		from := src[b*BlockNV : min((b+1)*BlockNV, len(src))]
		var amax float32
		for _, x := range from {
			if a := float32(math.Abs(float64(x))); a > amax { // NaN is not
				amax = a
			}
		}
		scales[b] = E4M3.Encode(amax*float32(tensor*float32(sixth)), Saturate)
		inverse := min(1/float32(E4M3.values()[scales[b]]*float32(1/tensor)), math.MaxFloat32)
		var codes [BlockNV]byte
		if random == nil {
			t.Merge(encodeEach(codes[:len(from)], from, &E2M1, inverse, Saturate))
		} else {
			t.Merge(encodeRandom(codes[:len(from)], from, random[b*BlockNV:], &E2M1, inverse))
		}
		to := dst[b*BlockNV/2:][:blocksOf(len(from), 2)]
		for i := range to {
			to[i] = codes[2*i] | codes[2*i+1]<<4
		}
	}
	return t
}

// DecodeNV is the reverse of EncodeNV.
func DecodeNV(dst []float32, src, scales []byte, tensor float32) {
	Portable.decodeNV(dst, src, scales, 1/tensor)
}

// decodeNV is DecodeNV with what the scale of a block is multiplied with.
func (s Set) decodeNV(dst []float32, src, scales []byte, factor float32) {
	const chunk = 64
	var values [chunk]float32 // of scales
	for at := 0; at < len(dst); at += chunk * BlockNV {
		to, from := dst[at:min(at+chunk*BlockNV, len(dst))], src[at/2:]
		n := blocksOf(len(to), BlockNV)
		s.Decode(values[:n], scales[at/BlockNV:][:n], &E4M3, factor)
		whole := 0
		if s != Portable && len(to) >= BlockNV {
			whole = len(to) / BlockNV
			s.decodeBlocksNV(to, from, values[:whole])
		}
		for i := whole * BlockNV; i < len(to); i++ {
			to[i] = E2M1.values()[from[i/2]>>(4*(i&1))&15] * values[i/BlockNV]
		}
	}
}

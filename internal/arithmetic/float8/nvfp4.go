package float8

import "math"

// NVFP4 scales at two levels: a float32 for the tensor, and an E4M3 for each 16 elements. The
// elements are E2M1, two in a byte, the first in its low half.

// TensorNV returns the tensor scale with which the block scales use the full range of E4M3, and
// the elements the full range of E2M1: 448·6/amax. It returns 1 if amax is zero or not finite,
// and the greatest float32 if the quotient overflows.
func TensorNV(amax float32) float32 {
	return ScaleOf(amax, E4M3.Greatest()*E2M1.Greatest(), 0, false)
}

// encodeNV encodes blocks of 16 elements. It multiplies in the same order as NVIDIA's code,
// because the order affects the bits: a block's scale is amax·(tensor·(1/6)) in E4M3, and its
// elements are multiplied by 1/(scale·(1/tensor)), at most the greatest float32. If random is not
// nil, encodeNV rounds stochastically.
func (s Set) encodeNV(dst, scales []byte, src []float32, tensor float32, random []uint32) (t Tally) {
	sixth := float32(tensor * float32(1.0/6))
	s.inBlocks(len(src), BlockNV, func(at, blocks int) int {
		met, done := encodeBlocksNV(dst[at/2:], scales[at/BlockNV:], src[at:], drawn(random, at, len(src)), blocks, tensor, sixth)
		t.Merge(met)
		return done
	}, func(at, end int) {
		t.Merge(encodeBlockNV(dst[at/2:], &scales[at/BlockNV], src[at:end], tensor, sixth, drawn(random, at, end)))
	})
	return t
}

// encodeBlockNV encodes one block.
func encodeBlockNV(dst []byte, scale *byte, src []float32, tensor, sixth float32, random []uint32) (t Tally) {
	var amax float32
	for _, x := range src {
		if a := math.Float32frombits(math.Float32bits(x) &^ signBit); a > amax { // false for NaN
			amax = a
		}
	}
	*scale = E4M3.Encode(amax*sixth, Saturate)
	inverse := min(1/float32(E4M3.values()[*scale]*float32(1/tensor)), math.MaxFloat32)
	var codes [BlockNV]byte
	t = encodeEach(codes[:len(src)], src, random, &E2M1, inverse)
	for i := range dst[:blocksOf(len(src), 2)] {
		dst[i] = codes[2*i] | codes[2*i+1]<<4
	}
	return t
}

// decodeNV reverses encodeNV. It multiplies the scale of each block by factor, and saturates.
func (s Set) decodeNV(dst []float32, src, scales []byte, factor float32) {
	const chunk = 64
	var values [chunk]float32 // scales as float32
	greatest := float32(E4M3.Greatest() * factor * E2M1.Greatest())
	far := greatest-greatest != 0
	for at := 0; at < len(dst); at += chunk * BlockNV {
		to, from := dst[at:min(at+chunk*BlockNV, len(dst))], src[at/2:]
		n := blocksOf(len(to), BlockNV)
		s.Decode(values[:n], scales[at/BlockNV:][:n], &E4M3, factor)
		whole := 0
		if s != Portable && !far && len(to) >= BlockNV {
			whole = len(to) / BlockNV
			s.decodeBlocksNV(to, from, values[:whole])
		}
		for i := whole * BlockNV; i < len(to); i++ {
			to[i] = saturated(E2M1.values()[from[i/2]>>(4*(i&1))&15], values[i/BlockNV])
		}
	}
}

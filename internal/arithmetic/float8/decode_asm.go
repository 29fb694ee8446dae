//go:build (amd64 || arm64) && !purego

package float8

// decodeGroups decodes whole groups of 32.
func (s Set) decodeGroups(dst []float32, src []byte, f *Format, scale float32) {
	if f.Mantissa == 3 {
		scale *= 256
	}
	if s == AVX512 {
		decode512(&dst[0], &src[0], len(src), scale, f.Mantissa == 3)
		return
	}
	decode256(&dst[0], &src[0], len(src), scale, f.Mantissa == 3)
}

// decodeBlocksMX decodes as many blocks as it can, and returns their number.
func (s Set) decodeBlocksMX(dst []float32, src, scales []byte, blocks int, f *Format) int {
	add := uint32(0)
	if f.Mantissa == 3 {
		add = 8
	}
	if s == AVX512 {
		return decodeMX512(&dst[0], &src[0], &scales[0], blocks, add, f.Mantissa == 3)
	}
	return decodeMX256(&dst[0], &src[0], &scales[0], blocks, add, f.Mantissa == 3)
}

// decodeBlocksNV decodes blocks with the given scales.
func (s Set) decodeBlocksNV(dst []float32, src []byte, scales []float32) {
	if s == AVX512 {
		decodeNV512(&dst[0], &src[0], &scales[0], len(scales))
		return
	}
	decodeNV256(&dst[0], &src[0], &scales[0], len(scales))
}

//go:noescape
func decode512(dst *float32, src *byte, n int, scale float32, e4m3 bool)

//go:noescape
func decode256(dst *float32, src *byte, n int, scale float32, e4m3 bool)

//go:noescape
func decodeMX512(dst *float32, src, scales *byte, blocks int, add uint32, e4m3 bool) int

//go:noescape
func decodeMX256(dst *float32, src, scales *byte, blocks int, add uint32, e4m3 bool) int

//go:noescape
func decodeNV512(dst *float32, src *byte, scales *float32, blocks int)

//go:noescape
func decodeNV256(dst *float32, src *byte, scales *float32, blocks int)

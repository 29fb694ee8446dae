//go:build amd64 && !purego

package float8

// The assembly takes a positive multiple of 16 elements, touches nothing beyond them,
// and expects finite numbers where it encodes.

//go:noescape
func encodeAVX512(dst *byte, src *float32, n int, scale float32, r *rounding, c *counts)

//go:noescape
func encodeAVX2(dst *byte, src *float32, n int, scale float32, r *rounding, c *counts)

//go:noescape
func decodeAVX512(dst *float32, src *byte, n int, scale float32, e4m3 bool)

//go:noescape
func decodeAVX2(dst *float32, src *byte, n int, scale float32, e4m3 bool)

//go:noescape
func amaxAVX512(src *float32, n int) uint32

//go:noescape
func amaxAVX2(src *float32, n int) uint32

func (s Set) encodeWhole(dst *byte, src *float32, n int, scale float32, r *rounding, c *counts) {
	if s == AVX512 {
		encodeAVX512(dst, src, n, scale, r, c)
		return
	}
	encodeAVX2(dst, src, n, scale, r, c)
}

func (s Set) decode(dst *float32, src *byte, n int, scale float32, e4m3 bool) {
	if s == AVX512 {
		decodeAVX512(dst, src, n, scale, e4m3)
		return
	}
	decodeAVX2(dst, src, n, scale, e4m3)
}

func (s Set) amax(src *float32, n int) uint32 {
	if s == AVX512 {
		return amaxAVX512(src, n)
	}
	return amaxAVX2(src, n)
}

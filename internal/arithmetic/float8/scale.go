package float8

import "math"

// ScaleOf returns the scale with which values of magnitude up to amax use the full range of a
// format whose greatest value is most: most/amax rounded to nearest or, if powerOf2 is set, the
// greatest power of two at or below it. An amax below epsilon counts as epsilon, and a quotient
// that overflows as the greatest finite float32. The scale is 1 if amax is zero, infinite or NaN.
func ScaleOf(amax, most, epsilon float32, powerOf2 bool) float32 {
	if amax < epsilon {
		amax = epsilon
	}
	if amax == 0 || amax != amax || math.IsInf(float64(amax), 0) {
		return 1
	}
	scale := most / amax
	if math.IsInf(float64(scale), 0) {
		scale = math.MaxFloat32
	}
	if powerOf2 {
		scale = math.Float32frombits(math.Float32bits(scale) & infinity)
	}
	return scale
}

// ScaleMX returns the scale of a block in MXFP8 whose greatest magnitude is amax (a bit pattern).
// If up is set, it is the least power of two with which no value exceeds the format's greatest
// value, as in hardware. Otherwise it follows OCP's minimal rule: the greatest power of two in
// amax over the greatest power of two in the format, so that some values may exceed the greatest
// one. Infinity and NaN give NaN. The quotient is exact, because it involves no rounded
// reciprocal.
func (f *Format) ScaleMX(amax uint32, up bool) E8M0 {
	if amax >= infinity {
		return NaNScale
	}
	greatest := math.Float32bits(f.Greatest())
	exponent := int(amax>>mantissaBits) - int(greatest>>mantissaBits) + exponentBias
	if up && amax&(1<<mantissaBits-1) > greatest&(1<<mantissaBits-1) {
		exponent++
	}
	return E8M0(max(0, exponent))
}

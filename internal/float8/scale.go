package float8

import "math"

// ScaleOf returns what values of greatest magnitude amax are multiplied with so that
// they fill a format whose greatest value is most: most/amax rounded to nearest, or with
// powerOf2 the power of two at or below it. An amax below epsilon counts as epsilon. The
// scale is 1 where amax is zero, infinite or NaN, and the greatest finite float32 where
// the quotient is larger.
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

// ScaleMX returns the scale of a block of greatest magnitude amax (a bit pattern) in
// MXFP8: with up the least power of two by which no value of the block is above the
// greatest one of the format, which hardware takes; else OCP's minimal rule, the
// greatest power of two in amax over that in the format, by which some are. Infinity and
// NaN make it NaN. The quotient is exact: no reciprocal is rounded.
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

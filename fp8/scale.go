package fp8

import "math"

// ScaleOf returns what a tensor of greatest magnitude amax is multiplied with so that it
// fills a format whose greatest value is max: max/amax rounded to nearest, or with
// powerOf2 the power of two at or below it (TransformerEngine's
// compute_scale_from_amax). An amax below epsilon counts as epsilon. Where amax is zero,
// infinite or NaN the scale is 1: TransformerEngine's kernel does so, its reference in
// Python gives 0 for infinity. A quotient that is too large becomes the greatest finite
// float32.
func ScaleOf(amax, max, epsilon float32, powerOf2 bool) float32 {
	if amax < epsilon {
		amax = epsilon
	}
	if amax == 0 || amax != amax || math.IsInf(float64(amax), 0) {
		return 1
	}
	scale := max / amax
	if math.IsInf(float64(scale), 0) {
		scale = math.MaxFloat32
	}
	if powerOf2 {
		scale = math.Float32frombits(math.Float32bits(scale) & 0xff800000)
	}
	return scale
}

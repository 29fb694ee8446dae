package fp8

import "github.com/weir-ml/weir/internal/arithmetic/float8"

// ScaleOf returns the scale with which a tensor whose greatest magnitude is amax uses the full
// range of a format whose greatest value is max: max/amax rounded to nearest or, if powerOf2 is
// set, the greatest power of two at or below it (TransformerEngine's compute_scale_from_amax). An
// amax below epsilon counts as epsilon. If amax is zero, infinite or NaN the scale is 1, as in
// TransformerEngine's kernel; its Python reference gives 0 for infinity. A quotient that
// overflows becomes the greatest finite float32.
func ScaleOf(amax, max, epsilon float32, powerOf2 bool) float32 {
	return float8.ScaleOf(amax, max, epsilon, powerOf2)
}

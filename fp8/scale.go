package fp8

import "github.com/weir-ml/weir/internal/float8"

// ScaleOf returns what a tensor of greatest magnitude amax is multiplied with so that it
// fills a format whose greatest value is max: max/amax rounded to nearest, or with
// powerOf2 the power of two at or below it (TransformerEngine's
// compute_scale_from_amax). An amax below epsilon counts as epsilon. If amax is zero,
// infinite or NaN the scale is 1: TransformerEngine's kernel does so, its reference in
// Python gives 0 for infinity. A quotient that is too large becomes the greatest finite
// float32.
func ScaleOf(amax, max, epsilon float32, powerOf2 bool) float32 {
	return float8.ScaleOf(amax, max, epsilon, powerOf2)
}

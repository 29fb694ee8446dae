package fp8

import "github.com/weir-ml/weir/kernels"

// Format is an element format.
type Format = kernels.Format

// The element formats. E4M3 is the OCP format without infinities (called fn elsewhere), with a
// greatest value of 448. E5M2 is the upper byte of a float16, with values up to 57,344. E2M1 has
// four bits and values up to 6.
const (
	E4M3 = kernels.E4M3
	E5M2 = kernels.E5M2
	E2M1 = kernels.E2M1
)

// Pair holds the formats used in the forward pass and for gradients.
type Pair struct{ Forward, Backward Format }

// Hybrid uses a longer mantissa in the forward pass and a wider range for gradients.
var Hybrid = Pair{E4M3, E5M2}

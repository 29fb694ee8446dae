package fp8

import "github.com/weir-ml/weir/kernels"

// Format is an element format.
type Format = kernels.Format

// The element formats. E4M3 is OCP's, without infinities (fn elsewhere), with a greatest value
// of 448. E5M2 is the upper byte of a float16, with values up to 57,344. E2M1 has four bits and
// values up to 6.
const (
	E4M3 = kernels.E4M3
	E5M2 = kernels.E5M2
	E2M1 = kernels.E2M1
)

// Pair holds the formats of the forward pass and of the gradients.
type Pair struct{ Forward, Backward Format }

// Hybrid has more mantissa in the forward pass and more range in gradients.
var Hybrid = Pair{E4M3, E5M2}

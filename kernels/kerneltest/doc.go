// Package kerneltest is the conformance suite for authors of devices: it checks what package
// kernels requires of a [kernels.Compute].
//
// [Run] runs every [Case] as a subtest, each on a separate device:
//
//	func TestConformance(t *testing.T) {
//		kerneltest.Run(t, func(t *testing.T) kernels.Compute { return open(t) })
//	}
//
// The suite opens each device with the function passed to Run and closes it. It computes
// references in float64 from the float32 operands, and checks each backward pass against
// central differences of the reference of its forward pass. The bounds on the difference, with
// u = 2^-24 and the maximum taken over the result:
//
//	sums, copies, embedding, SumSquares    none: bit-equal
//	low precision                          none: bit-equal to a host in plain Go; all NaNs are equal
//	MatMul                                 (K+3)·u·Σ|a|·|b|, plus |C| if it accumulates
//	SumRows                                (rows+1)·u·Σ|x|
//	LayerNorm, attention, LSE              2^-18 of the maximum
//	GELU                                   2^-20·|x|
//	HeadLoss                               2^-18 of the sum of the magnitudes of its terms
//	gradients                              2^-14 of the maximum, plus 1e-10 for the differences
//	Normal                                 2^-18 of the standard deviation
//	AdamW                                  2^-18 of the maximum
//
// Package memorytest examines the memory of the device. Around every operation the suite checks
// that operands are unchanged, that neighboring buffers are untouched, and that the device
// neither allocated nor freed memory.
package kerneltest

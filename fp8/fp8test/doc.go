// Package fp8test holds a device to the numbers of low precision: whatever it quantizes,
// decodes and multiplies is compared, to the bit, with the host in plain Go
// ([kernels.Portable]), over every encoding, over shapes around the edges of blocks, and
// over the numbers at which rounding decides. Infinities and NaN are among them; one NaN
// is as good as another.
//
// [Run] is for a test:
//
//	func TestDevice(t *testing.T) {
//		fp8test.Run(t, func() kernels.Compute { return open(t) })
//	}
//
// Package kerneltest has what else a device must do.
package fp8test

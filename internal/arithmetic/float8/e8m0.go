package float8

import "math"

// E8M0 is a scale: a power of two from 2^-127 to 2^127, or NaN. It has no sign, zero or infinity.
type E8M0 uint8

// NaNScale is the code of NaN.
const NaNScale E8M0 = 0xff

// Float32 returns the scale's value.
func (s E8M0) Float32() float32 { return power(int(s), s) }

// Reciprocal returns 1/value. The reciprocal of 2^127 is 2^-127, which is subnormal.
func (s E8M0) Reciprocal() float32 { return power(2*exponentBias-int(s), s) }

// power returns the power of two with the given biased exponent, which is at least 0, or NaN if s
// is NaN.
func power(exponent int, s E8M0) float32 {
	switch {
	case s == NaNScale:
		return float32(math.NaN())
	case exponent <= 0: // 2^-127 is subnormal
		return math.Float32frombits(1 << (mantissaBits - 1))
	}
	return math.Float32frombits(uint32(exponent) << mantissaBits)
}

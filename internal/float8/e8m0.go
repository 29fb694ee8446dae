package float8

import "math"

// E8M0 is a scale: a power of two from 2^-127 to 2^127, without sign, zero and infinity.
type E8M0 uint8

// NaNScale is the code that stands for no number.
const NaNScale E8M0 = 0xff

// Float32 returns the value.
func (s E8M0) Float32() float32 { return power(int(s), s) }

// Reciprocal returns 1/value. That of 2^127 is 2^-127, which is subnormal.
func (s E8M0) Reciprocal() float32 { return power(2*exponentBias-int(s), s) }

// power returns the float32 with a biased exponent from 0 on.
func power(exponent int, s E8M0) float32 {
	switch {
	case s == NaNScale:
		return float32(math.NaN())
	case exponent <= 0: // 2^-127 is subnormal
		return math.Float32frombits(1 << (mantissaBits - 1))
	}
	return math.Float32frombits(uint32(exponent) << mantissaBits)
}

// ScaleUp returns the least power of two that is not below x: the rule of MXFP8 in
// hardware (round towards positive infinity, satfinite). Zero and what is below the
// range become 2^-127, infinity and what is above it 2^127. NaN stays NaN; the sign is
// not looked at.
func ScaleUp(x float32) E8M0 {
	a := math.Float32bits(x) &^ signBit
	switch {
	case a > infinity:
		return NaNScale
	case a >= 0xfe<<mantissaBits: // infinity, or no power of two above
		return 0xfe
	}
	exponent, mantissa := a>>mantissaBits, a&(1<<mantissaBits-1)
	if mantissa > 0 && (exponent > 0 || mantissa > 1<<(mantissaBits-1)) {
		exponent++
	}
	return E8M0(exponent)
}

// ScaleDown returns the greatest power of two that is not above x: the minimal rule of
// the OCP MX specification, before the exponent of the element format is taken off. What
// is below the range becomes 2^-127, infinity 2^127.
func ScaleDown(x float32) E8M0 {
	a := math.Float32bits(x) &^ signBit
	switch {
	case a > infinity:
		return NaNScale
	case a == infinity:
		return 0xfe
	}
	return E8M0(a >> mantissaBits)
}

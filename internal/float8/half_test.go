package float8

// Source formats that only tests convert from.

import "math"

// BFloat16 is the upper half of a float32.
type BFloat16 uint16

// Float32 returns the value, exactly.
func (b BFloat16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// Float16 is the IEEE format of 16 bits.
type Float16 uint16

// Float32 returns the value, exactly.
func (h Float16) Float32() float32 {
	sign, exponent, mantissa := uint32(h)>>15<<31, uint32(h)>>10&31, uint32(h)&1023
	switch exponent {
	case 0:
		value := float32(mantissa) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(value) | sign)
	case 31:
		return math.Float32frombits(sign | infinity | mantissa<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<mantissaBits | mantissa<<13)
}

// Odd returns x as a float32 rounded to odd: truncated towards zero, with the last bit set if
// the result is inexact. Encoding the result rounds x only once. NaN stays NaN.
func Odd(x float64) float32 {
	nearest := float32(x)
	if float64(nearest) == x || x != x {
		return nearest
	}
	bits := math.Float32bits(nearest)
	if math.Abs(float64(nearest)) > math.Abs(x) { // also if nearest is infinite
		bits--
	}
	return math.Float32frombits(bits | 1)
}

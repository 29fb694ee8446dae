package float8

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

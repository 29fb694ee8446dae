package float8

import "math"

// Overflow says what a value above the greatest finite one becomes.
type Overflow uint8

const (
	// Saturate makes it the greatest finite value, infinity too. It is what hardware
	// does for training (satfinite), and the zero value.
	Saturate Overflow = iota
	// Overflows makes it infinity where the format has one, and NaN where it has none.
	// A value that rounds to the greatest finite one is not above it.
	Overflows
)

// Parts of a float32.
const (
	signBit      = 1 << 31
	infinity     = 0x7f800000
	mantissaBits = 23
	exponentBias = 127
)

// Encode returns the code of the value nearest to x, of two the one with an even
// mantissa. The sign is kept, that of zero and NaN too.
func (f *Format) Encode(x float32, o Overflow) byte {
	bits := math.Float32bits(x)
	a := bits &^ signBit
	if a >= infinity {
		return f.special(bits, o)
	}
	return f.within(f.round(a), bits, o)
}

// round rounds a finite magnitude to a code, as if there were codes beyond the greatest.
func (f *Format) round(a uint32) uint32 {
	dropped := mantissaBits - f.Mantissa
	if normal := uint32(exponentBias+1-f.Bias) << mantissaBits; a >= normal {
		odd := a >> dropped & 1
		return (a+1<<(dropped-1)-1+odd)>>dropped - uint32(exponentBias-f.Bias)<<f.Mantissa
	}
	// A number whose last bit is worth as much as that of a subnormal makes the addition
	// round to it.
	magic := math.Float32frombits(uint32(exponentBias+dropped+1-f.Bias) << mantissaBits)
	return math.Float32bits(math.Float32frombits(a)+magic) - math.Float32bits(magic)
}

// Stochastic returns the code of one of the two values around x: the upper one in
// magnitude with the probability of how far x is from the lower one, for a uniform
// random number. A distance below 2^-32 of the step between the two counts as none.
func (f *Format) Stochastic(x float32, random uint32, o Overflow) byte {
	bits := math.Float32bits(x)
	a := bits &^ signBit
	if a >= infinity {
		return f.special(bits, o)
	}
	// x is significand·2^k steps of the format.
	exponent := int(a >> mantissaBits)
	significand := uint64(a & (1<<mantissaBits - 1))
	if exponent == 0 {
		exponent = 1
	} else {
		significand |= 1 << mantissaBits
	}
	least := exponentBias + 1 - f.Bias // the exponent of the least normal value
	below := uint(mantissaBits - f.Mantissa + max(0, least-exponent))
	base := uint32(max(0, exponent-least)) << f.Mantissa // steps up to the binade, less what the hidden bit counts
	whole := significand >> below
	part := significand - whole<<below
	if below <= 32 {
		part <<= 32 - below
	} else {
		part >>= min(below-32, 63)
	}
	return f.within(base+uint32(whole)+uint32((part+uint64(random))>>32), bits, o)
}

// special encodes infinities and NaN.
func (f *Format) special(bits uint32, o Overflow) byte {
	if bits&^signBit > infinity {
		return f.signed(f.NaN, bits)
	}
	return f.within(1<<16, bits, o)
}

// within gives a rounded magnitude its sign, and decides what is too large.
func (f *Format) within(code, bits uint32, o Overflow) byte {
	switch {
	case code <= uint32(f.Max):
		return f.signed(byte(code), bits)
	case o == Saturate:
		return f.signed(f.Max, bits)
	case f.Inf != 0:
		return f.signed(f.Inf, bits)
	}
	return f.signed(f.NaN, bits)
}

// signed adds the sign of a float32.
func (f *Format) signed(code byte, bits uint32) byte {
	return code | byte(bits>>31)*f.Sign // without a branch: signs are random
}

package float8

import "math"

// Overflow selects the encoding of values above the greatest finite one.
type Overflow uint8

const (
	// Saturate encodes such values, including infinity, as the greatest finite value, as hardware does for
	// training (satfinite). It is the zero value.
	Saturate Overflow = iota
	// Overflows encodes such values as infinity, or as NaN if the format has no infinity. A value that rounds to
	// the greatest finite one is not above it.
	Overflows
)

// Parts of a float32.
const (
	signBit      = 1 << 31
	infinity     = 0x7f800000
	mantissaBits = 23
	exponentBias = 127
)

// Encode returns the code of the value nearest to x, or what o selects if that value is above the
// greatest one; ties go to the value with an even mantissa. It keeps the sign, even of zero and
// NaN.
func (f *Format) Encode(x float32, o Overflow) byte {
	bits := math.Float32bits(x)
	a := bits &^ signBit
	if a >= infinity {
		return f.special(bits, o)
	}
	return f.clamp(f.round(a), bits, o)
}

// round rounds a finite magnitude to a code, as if the codes continued beyond the greatest one.
func (f *Format) round(a uint32) uint32 {
	dropped := mantissaBits - f.Mantissa
	if normal := uint32(exponentBias+1-f.Bias) << mantissaBits; a >= normal {
		odd := a >> dropped & 1
		return (a+1<<(dropped-1)-1+odd)>>dropped - uint32(exponentBias-f.Bias)<<f.Mantissa
	}
	// Adding a number whose last bit has the value of a subnormal's last bit rounds to that bit.
	magic := math.Float32frombits(uint32(exponentBias+dropped+1-f.Bias) << mantissaBits)
	return math.Float32bits(math.Float32frombits(a)+magic) - math.Float32bits(magic)
}

// Stochastic returns the code of one of the two values around x. For a uniform random number, the
// probability of the upper magnitude is the distance of x from the lower one, in units of the
// distance between the two. Distances below 2^-32 of that unit count as zero. Stochastic
// saturates.
func (f *Format) Stochastic(x float32, random uint32) byte {
	bits := math.Float32bits(x)
	a := bits &^ signBit
	if a >= infinity {
		return f.special(bits, Saturate)
	}
	// x is significand·2^k units of the format.
	exponent := int(a >> mantissaBits)
	significand := uint64(a & (1<<mantissaBits - 1))
	if exponent == 0 {
		exponent = 1
	} else {
		significand |= 1 << mantissaBits
	}
	least := exponentBias + 1 - f.Bias // the exponent of the smallest normal value
	below := uint(mantissaBits - f.Mantissa + max(0, least-exponent))
	base := uint32(max(0, exponent-least)) << f.Mantissa // number of units below the binade, minus the value of the hidden bit
	whole := significand >> below
	part := significand - whole<<below
	if below <= 32 {
		part <<= 32 - below
	} else {
		part >>= min(below-32, 63)
	}
	return f.clamp(base+uint32(whole)+uint32((part+uint64(random))>>32), bits, Saturate)
}

// special encodes infinities and NaN.
func (f *Format) special(bits uint32, o Overflow) byte {
	if bits&^signBit > infinity {
		return f.signed(f.NaN, bits)
	}
	return f.clamp(1<<16, bits, o)
}

// clamp adds the sign to a rounded magnitude, and handles overflow.
func (f *Format) clamp(code, bits uint32, o Overflow) byte {
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

// signed adds the sign of a float32 to a code.
func (f *Format) signed(code byte, bits uint32) byte {
	return code | byte(bits>>31)*f.Sign // branch-free, because signs are random
}

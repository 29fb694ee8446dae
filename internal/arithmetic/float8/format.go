package float8

import "math"

// Format is a floating-point format with a sign, a biased exponent, a mantissa and subnormals.
// A code occupies the low bits of a byte.
type Format struct {
	Name string
	// Mantissa is the number of bits of the mantissa, and Bias is the bias of the exponent.
	Mantissa, Bias int
	// Sign is the sign bit.
	Sign byte
	// Max is the code of the greatest finite value, Inf the code of infinity, and NaN the code of
	// the quiet NaN that encoding produces. Inf is 0 if the format has no infinity. If the format
	// has no NaN, NaN equals Max: a NaN then becomes the greatest finite value.
	Max, Inf, NaN byte
}

// The element formats. E4M3 is the variant without infinities (OCP OFP8, called fn elsewhere),
// and E2M1 is the format of MXFP4 and NVFP4.
var (
	E4M3 = Format{Name: "e4m3", Mantissa: 3, Bias: 7, Sign: 0x80, Max: 0x7e, NaN: 0x7f}
	E5M2 = Format{Name: "e5m2", Mantissa: 2, Bias: 15, Sign: 0x80, Max: 0x7b, Inf: 0x7c, NaN: 0x7f}
	E2M1 = Format{Name: "e2m1", Mantissa: 1, Bias: 1, Sign: 0x8, Max: 0x7, NaN: 0x7}
)

// Decode returns the value of a code. Every value is exact.
func (f *Format) Decode(code byte) float32 {
	magnitude := code & (f.Sign - 1)
	value := f.magnitude(magnitude)
	if code&f.Sign != 0 {
		value = float32(math.Copysign(float64(value), -1))
	}
	return value
}

// magnitude decodes a code without its sign.
func (f *Format) magnitude(code byte) float32 {
	switch {
	case code <= f.Max:
	case f.Inf != 0 && code == f.Inf:
		return float32(math.Inf(1))
	default:
		return float32(math.NaN())
	}
	exponent, mantissa := int(code>>f.Mantissa), int(code)&(1<<f.Mantissa-1)
	if exponent == 0 {
		exponent = 1
	} else {
		mantissa += 1 << f.Mantissa
	}
	unit := uint32(exponentBias+exponent-f.Bias-f.Mantissa) << mantissaBits
	return float32(mantissa) * math.Float32frombits(unit)
}

// tables holds the values of each element format's codes, indexed by Mantissa.
var tables = [4][256]float32{1: E2M1.Table(), 2: E5M2.Table(), 3: E4M3.Table()}

// values returns an element format's table.
func (f *Format) values() *[256]float32 { return &tables[f.Mantissa] }

// Greatest returns the greatest finite value.
func (f *Format) Greatest() float32 { return f.values()[f.Max] }

// LeastNormal returns the smallest normal value.
func (f *Format) LeastNormal() float32 { return f.values()[1<<f.Mantissa] }

// Table returns the values of all 256 codes. It ignores bits above the format's own.
func (f *Format) Table() (values [256]float32) {
	for code := range values {
		values[code] = f.Decode(byte(code))
	}
	return values
}

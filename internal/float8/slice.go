package float8

import "math"

// Tally is what an encoder met.
type Tally struct {
	// Amax is the bit pattern of the greatest magnitude before the scale. Patterns
	// compare like magnitudes, infinity above all numbers and NaN above infinity.
	Amax uint32
	// Saturated counts finite values that were above the greatest finite one, Underflowed
	// those that were not zero and became it, NonFinite infinities and NaN.
	Saturated, Underflowed, NonFinite int
	// Least and Most are the bit patterns of the least and the greatest scale that
	// quantizing a matrix has multiplied with, 0 where there was none.
	Least, Most uint32
}

// scale enters a scale, which is positive.
func (t *Tally) scale(x float32) {
	t.Merge(Tally{Least: math.Float32bits(x), Most: math.Float32bits(x)})
}

// Merge adds another tally. The order of merging does not matter.
func (t *Tally) Merge(other Tally) {
	t.Amax = max(t.Amax, other.Amax)
	t.Saturated += other.Saturated
	t.Underflowed += other.Underflowed
	t.NonFinite += other.NonFinite
	t.Most = max(t.Most, other.Most)
	if t.Least == 0 || other.Least != 0 && other.Least < t.Least {
		t.Least = other.Least
	}
}

// Greatest returns Amax as a number.
func (t *Tally) Greatest() float32 { return math.Float32frombits(t.Amax) }

// block is how many elements the assembly does at once.
const block = 16

// Encode encodes src times scale, the product rounded to a float32, into dst, which is
// as long as src and does not overlap it. It is for E4M3 and E5M2.
func (s Set) Encode(dst []byte, src []float32, f *Format, scale float32, o Overflow) Tally {
	dst = dst[:len(src)]
	whole := len(src) &^ (block - 1)
	if s == Portable || math.Float32bits(scale)&^signBit >= infinity {
		return encodeEach(dst, src, f, scale, o)
	}
	t := s.encodeBlocks(dst[:whole], src[:whole], f, scale, o)
	if rest := len(src) - whole; rest > 0 {
		var from [block]float32
		var to [block]byte
		copy(from[:], src[whole:])
		t.Merge(s.encodeBlocks(to[:], from[:], f, scale, o))
		copy(dst[whole:], to[:rest])
	}
	return t
}

// encodeBlocks encodes whole blocks. The assembly knows no infinities and no NaN: where
// it meets one, all is done again without it. The scale is finite.
func (s Set) encodeBlocks(dst []byte, src []float32, f *Format, scale float32, o Overflow) Tally {
	if len(src) == 0 {
		return Tally{}
	}
	var c counts
	s.encodeWhole(&dst[0], &src[0], len(src), scale, f.rounding(o), &c)
	if c.amax >= infinity {
		return encodeEach(dst, src, f, scale, o)
	}
	return Tally{Amax: c.amax, Saturated: int(c.saturated), Underflowed: int(c.underflowed)}
}

// encodeEach encodes element after element.
func encodeEach(dst []byte, src []float32, f *Format, scale float32, o Overflow) (t Tally) {
	for i, x := range src {
		dst[i] = f.Encode(x*scale, o)
		t.note(x, x*scale, dst[i], f)
	}
	return t
}

// note enters an element, what it is multiplied with its scale, and its code.
func (t *Tally) note(x, scaled float32, code byte, f *Format) {
	a := math.Float32bits(x) &^ signBit
	t.Amax = max(t.Amax, a)
	switch code &= f.Sign - 1; {
	case a >= infinity:
		t.NonFinite++
	case code == 0 && a != 0:
		t.Underflowed++
	case code >= f.Max && f.above(scaled):
		t.Saturated++
	}
}

// above reports whether a value rounds to more than the greatest finite one.
func (f *Format) above(x float32) bool {
	a := math.Float32bits(x) &^ signBit
	return a >= infinity || f.round(a) > uint32(f.Max)
}

// Decode decodes src times scale into dst, which is as long as src.
func (s Set) Decode(dst []float32, src []byte, f *Format, scale float32) {
	dst = dst[:len(src)]
	whole := len(src) &^ (block - 1)
	if s == Portable || f.Mantissa < 2 {
		whole = 0
	}
	if whole > 0 {
		s.decode(&dst[0], &src[0], whole, scale, f.Mantissa == 3)
	}
	for i, code := range src[whole:] {
		dst[whole+i] = f.Decode(code) * scale
	}
}

// Amax returns the bit pattern of the greatest magnitude.
func (s Set) Amax(src []float32) (most uint32) {
	whole := len(src) &^ (block - 1)
	if s == Portable {
		whole = 0
	}
	if whole > 0 {
		most = s.amax(&src[0], whole)
	}
	for _, x := range src[whole:] {
		most = max(most, math.Float32bits(x)&^signBit)
	}
	return most
}

// rounding is a format as the assembly takes it.
type rounding struct {
	shift  uint64 // bits of a float32 that are dropped
	bias   uint32 // what turns a float32 into a rounded code, before the shift
	normal uint32 // the least float32 that is normal in the format
	magic  uint32 // the float32 that makes an addition round subnormals
	most   uint32 // the greatest code
	above  uint32 // the code of what is greater
}

// counts is what the assembly returns.
type counts struct{ amax, saturated, underflowed uint32 }

func (f *Format) rounding(o Overflow) *rounding {
	dropped := mantissaBits - f.Mantissa
	return &rounding{
		shift:  uint64(dropped),
		bias:   1<<(dropped-1) - 1 - uint32(exponentBias-f.Bias)<<mantissaBits,
		normal: uint32(exponentBias+1-f.Bias) << mantissaBits,
		magic:  uint32(exponentBias+dropped+1-f.Bias) << mantissaBits,
		most:   uint32(f.Max),
		above:  uint32(f.within(1<<16, 0, o)),
	}
}

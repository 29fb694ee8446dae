package float8

import "math"

// Tally holds statistics of the elements that were encoded.
type Tally struct {
	// Amax is the bit pattern of the greatest magnitude before scaling. Bit patterns compare
	// like magnitudes, with infinity above all numbers and NaN above infinity.
	Amax uint32
	// Saturated counts the finite values that, scaled, round to more than the greatest finite
	// one, Underflowed the nonzero values that became zero, and NonFinite the infinities and
	// NaNs.
	Saturated, Underflowed, NonFinite int
	// Least and Most are the bit patterns of the least and the greatest scale by which a matrix's
	// elements were multiplied, or 0 if there was none. Blocks and tiles whose amax (at least the
	// rule's Epsilon, if it has one) is zero or not finite do not count.
	Least, Most uint32
}

// scale adds x, the scale computed for amax, unless amax is zero or not finite.
func (t *Tally) scale(x, amax float32) {
	if amax > 0 && amax <= math.MaxFloat32 {
		t.Merge(Tally{Least: math.Float32bits(x), Most: math.Float32bits(x)})
	}
}

// Merge merges another tally into t. The order of merges does not matter.
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

// The assembly works on groups of 64 elements, and on pieces that stay in the first-level cache:
// counts that it does not compute itself are computed afterwards on the piece, if there is
// anything to count.
const (
	group = 64
	piece = 4096
)

// Encode encodes src times scale, with the product rounded to a float32, into dst, which has the
// same length as src and does not overlap it. It saturates. It rounds to nearest if random is
// nil, and otherwise stochastically, with a random number for each element.
func (s Set) Encode(dst []byte, src []float32, random []uint32, f *Format, scale float32) (t Tally) {
	dst = dst[:len(src)]
	if s == Portable || random == nil && !exact(scale) || math.Float32bits(scale) >= infinity {
		return encodeEach(dst, src, random, f, scale)
	}
	whole := len(src) &^ (group - 1)
	for at := 0; at < whole; at += piece {
		end := min(at+piece, whole)
		t.Merge(encodeGroups(dst[at:end], src[at:end], drawn(random, at, end), f, scale))
	}
	if n := len(src) - whole; n > 0 {
		var from [group]float32
		var draws [group]uint32
		var to [group]byte
		copy(from[:], src[whole:])
		if random != nil {
			copy(draws[:], random[whole:][:n])
			random = draws[:]
		}
		t.Merge(encodeGroups(to[:], from[:], random, f, scale))
		copy(dst[whole:], to[:])
	}
	return t
}

// drawn returns random[from:end], or nil if random is nil.
func drawn(random []uint32, from, end int) []uint32 {
	if random == nil {
		return nil
	}
	return random[from:end]
}

// encodeGroups encodes whole groups. The assembly does not handle infinities and NaN; if there are
// any, everything is encoded again without it.
func encodeGroups(dst []byte, src []float32, random []uint32, f *Format, scale float32) Tally {
	t, ok := encodePiece(dst, src, random, f, scale)
	if !ok {
		return encodeEach(dst, src, random, f, scale)
	}
	return t
}

// countAbove counts the values that round to more than the greatest finite one.
func (f *Format) countAbove(src []float32, scale float32) (n int) {
	for _, x := range src {
		if f.overflows(x * scale) {
			n++
		}
	}
	return n
}

// encodeEach applies Format.Encode or Format.Stochastic to each element. It computes the values that depend
// only on the format once, and branches only for elements that are too large or not finite.
func encodeEach(dst []byte, src []float32, random []uint32, f *Format, scale float32) (t Tally) {
	if random != nil {
		return encodeEachRandom(dst, src, random, f, scale)
	}
	dropped := uint(mantissaBits-f.Mantissa) & 31
	normal := uint32(exponentBias+1-f.Bias) << mantissaBits
	offset := uint32(exponentBias-f.Bias) << f.Mantissa
	half := uint32(1)<<(dropped-1) - 1
	magic := uint32(exponentBias+int(dropped)+1-f.Bias) << mantissaBits
	most, sign := uint32(f.Max), f.Sign
	var amax uint32
	var underflowed uint64
	dst = dst[:len(src)]
	for i, x := range src {
		scaled := math.Float32bits(x * scale)
		before, a := math.Float32bits(x)&^signBit, scaled&^signBit
		amax = max(amax, before)
		code := (a+half+a>>dropped&1)>>dropped - offset
		small := math.Float32bits(math.Float32frombits(a)+math.Float32frombits(magic)) - magic
		if a < normal {
			code = small
		}
		if before >= infinity || a >= infinity || code > most {
			dst[i] = f.Encode(x*scale, Saturate)
			t.note(x, x*scale, dst[i], f)
			continue
		}
		underflowed += (uint64(code) - 1) >> 63 &^ ((uint64(before) - 1) >> 63) // the code is 0, but the number is not
		dst[i] = byte(code) | byte(scaled>>31)*sign
	}
	t.Amax = max(t.Amax, amax)
	t.Underflowed += int(underflowed)
	return t
}

// note adds an element, given with its scaled value and its code.
func (t *Tally) note(x, scaled float32, code byte, f *Format) {
	a := math.Float32bits(x) &^ signBit
	t.Amax = max(t.Amax, a)
	switch code &= f.Sign - 1; {
	case a >= infinity:
		t.NonFinite++
	case code == 0 && a != 0:
		t.Underflowed++
	case code >= f.Max && f.overflows(scaled):
		t.Saturated++
	}
}

// overflows reports whether a value rounds to more than the greatest finite one.
func (f *Format) overflows(x float32) bool {
	a := math.Float32bits(x) &^ signBit
	return a >= infinity || f.round(a) > uint32(f.Max)
}

// saturated returns value times scale. If both are finite and the product is not, it returns the greatest
// float32 with the sign of the product: the code nearest to a number may have a greater value, and finite
// numbers have to stay finite.
func saturated(value, scale float32) float32 {
	x := float32(value * scale)
	if x-x != 0 && value-value == 0 && scale-scale == 0 {
		return float32(math.Copysign(math.MaxFloat32, float64(x)))
	}
	return x
}

// Decode decodes src, multiplies by scale and writes the result to dst, which has the same length
// as src. It saturates.
func (s Set) Decode(dst []float32, src []byte, f *Format, scale float32) {
	const group = 32
	dst = dst[:len(src)]
	values := f.values()
	if greatest := float32(f.Greatest() * scale); greatest-greatest != 0 {
		for i, code := range src {
			dst[i] = saturated(values[code], scale)
		}
		return
	}
	if s == Portable || f.Mantissa < 2 {
		for i, code := range src {
			dst[i] = values[code] * scale
		}
		return
	}
	whole := len(src) &^ (group - 1)
	if whole > 0 {
		s.decodeGroups(dst[:whole], src[:whole], f, scale)
	}
	if whole < len(src) {
		var from [group]byte
		var to [group]float32
		copy(from[:], src[whole:])
		s.decodeGroups(to[:], from[:], f, scale)
		copy(dst[whole:], to[:])
	}
}

// Amax returns the bit pattern of the greatest magnitude.
func (s Set) Amax(src []float32) (most uint32) {
	whole := len(src) &^ 15
	if s == Portable {
		whole = 0
	}
	if whole > 0 {
		most = amax(src[:whole])
	}
	for _, x := range src[whole:] {
		most = max(most, math.Float32bits(x)&^signBit)
	}
	return most
}

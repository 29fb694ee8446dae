package loss

import (
	"math"
	"math/bits"
)

const (
	// limbs is the number of 32-bit limbs, which cover the 2,098 bits between the smallest subnormal
	// (2^-1074, the unit) and the largest finite float64; the last limb is signed and receives the
	// carries of the others.
	limbs = 66
	top   = limbs - 1
	// pending is the index of the word that counts the additions since carries were last propagated. Its
	// sign bit is set once a non-finite value has been added.
	pending = limbs
	// settleAt is a power of two, which pending reaches in increments of one. That many contributions of
	// less than 2^32 each keep a limb below 2^61, so that two accumulators with pending carries merge
	// without overflow.
	settleAt = 1 << 29
)

// Exact sums float64 values without rounding. It consists of 67 64-bit words: a fixed-point number of 66
// limbs with the unit 2^-1074, and the number of additions since carries were propagated. Integer
// addition is associative, so sums depend neither on the order of additions nor on how they were split
// and merged.
//
// The sum of all magnitudes must stay below 2^45 times the largest finite float64, which no
// program reaches by addition. The zero value is 0, ready to use. An Exact contains no pointers and
// may be copied.
//
// This is Kulisch's long accumulator (Computer Arithmetic and Validity, 2013) with deferred
// carries as in Neal's "Fast exact summation using small and large superaccumulators" (2015).
type Exact struct {
	w [limbs + 1]int64
}

// Reset sets a to zero.
func (a *Exact) Reset() { *a = Exact{} }

// Add adds x. Once a NaN or an infinity has been added, Float64 returns NaN until Reset.
func (a *Exact) Add(x float64) {
	b := math.Float64bits(x)
	e := b >> 52 & 0x7ff
	m := b & (1<<52 - 1)
	if e == 0x7ff {
		a.w[pending] |= math.MinInt64
		return
	}
	if e != 0 { // a normal number has a hidden bit; a subnormal has the same unit
		m |= 1 << 52
		e--
	}
	// x is sign * m * 2^e units. m << (e mod 32) has at most 84 bits and is spread over three
	// limbs, less than 2^32 in each.
	s := e & 31
	lo, hi := m<<s, m>>1>>(63-s)
	sign := int64(b) >> 63 // 0 or -1; (v ^ sign) - sign negates without a branch
	i := e >> 5 & 63       // e is at most 2045; the mask avoids bounds checks
	a.w[i] += (int64(lo&0xffffffff) ^ sign) - sign
	a.w[i+1] += (int64(lo>>32) ^ sign) - sign
	a.w[i+2] += (int64(hi) ^ sign) - sign
	a.w[pending]++
	if a.w[pending]&settleAt != 0 {
		a.propagateCarries()
	}
}

// Merge adds the sum of b. It only reads b, which may be a itself.
func (a *Exact) Merge(b *Exact) {
	flag := (a.w[pending] | b.w[pending]) & math.MinInt64
	for i := range limbs {
		a.w[i] += b.w[i]
	}
	a.propagateCarries()
	a.w[pending] = flag
}

// propagateCarries propagates carries until every limb but the last is in [0, 2^32). That form is unique:
// equal sums have equal words.
func (a *Exact) propagateCarries() {
	var carry int64
	for i := range top {
		v := a.w[i] + carry
		a.w[i] = v & 0xffffffff
		carry = v >> 32 // an arithmetic shift, which rounds down for negatives
	}
	a.w[top] += carry
	a.w[pending] &= math.MinInt64
}

// negative reports whether the sum is below 0. Carries must have been propagated.
func (a *Exact) negative() bool { return a.w[top] < 0 }

// Float64 returns the sum rounded to the nearest float64, ties to even. A sum beyond the largest finite
// value becomes an infinity with its sign, and a sum of zero is +0. Once a NaN or an infinity has been
// added, the result is NaN.
func (a *Exact) Float64() float64 {
	if a.w[pending] < 0 {
		return math.NaN()
	}
	v := *a
	v.propagateCarries()
	var sign uint64
	if v.negative() {
		sign = 1 << 63
		for i := range limbs {
			v.w[i] = -v.w[i]
		}
		v.propagateCarries()
	}
	// The magnitude in digits of 32 bits; the last limb yields two digits.
	var d [limbs + 1]uint32
	for i := range top {
		d[i] = uint32(v.w[i])
	}
	d[top], d[top+1] = uint32(v.w[top]), uint32(v.w[top]>>32)
	h := top + 1
	for h > 1 && d[h] == 0 {
		h--
	}
	// m is the leading 64 bits, with the highest bit at position q of the whole number, or the
	// whole number if it has at most two digits.
	m := uint64(d[h])<<32 | uint64(d[h-1])
	if m < 1<<53 && h == 1 {
		// The number fits: m units are exactly the float whose bits are m, for subnormals and
		// for the first binade of normal numbers alike.
		return math.Float64frombits(sign | m)
	}
	lz := bits.LeadingZeros64(m)
	q := h*32 + 31 - lz
	m <<= lz
	rest := 0 // the first digit that is not in m
	if h >= 2 {
		m |= uint64(d[h-2]) >> (32 - lz)
		if d[h-2]<<lz != 0 {
			m |= 1 // sticky bit: it represents all lower bits
		}
		rest = h - 2
	}
	for _, v := range d[:rest] {
		if v != 0 {
			m |= 1
			break
		}
	}
	exponent := uint64(q - 51) // position 52 is the first normal binade
	if exponent >= 0x7ff {
		return math.Float64frombits(sign | 0x7ff<<52)
	}
	// Keep 53 bits, and round the rest to nearest even. A carry out of the mantissa increments
	// the exponent, possibly to infinity.
	const half, mask = 1 << 10, 1<<11 - 1
	r := (exponent-1)<<52 + m>>11
	if tail := m & mask; tail > half || tail == half && r&1 == 1 {
		r++
	}
	return math.Float64frombits(sign | r)
}

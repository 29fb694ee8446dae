package kernels

import "math"

// The constants of exp. The upper part of ln 2 / 64 has 11 bits, so that its
// product with every n that occurs is exact.
const (
	log2E64  = 64 * math.Log2E
	ln2Hi64  = 1420.0 / (1 << 17)
	ln2Lo64  = math.Ln2/64 - ln2Hi64
	expMin   = -87.33654     // below it e^x is less than the smallest normal float32
	roundInt = 1<<23 + 1<<22 // added to |t| < 2^22 it leaves round(t) in the low bits
)

// expTable has the bits of 2^(i/64), less i at the place where exp adds n.
var expTable = func() (table [64]uint32) {
	for i := range table {
		table[i] = math.Float32bits(float32(math.Exp2(float64(i)/64))) - uint32(i)<<17
	}
	return table
}()

// exp returns e^x for x <= 0, and a rounding error above it, with a relative
// error of at most 2^-22; below -87.33654, where e^x is less than 2^-126, it
// returns 0. A NaN stays NaN. It is not for x above 88. All exponentials here are
// of what is not positive, and float32 is enough for them.
//
// x = n·ln 2/64 + r with |r| <= ln 2/128, and e^x = 2^(n/64)·e^r. The power comes
// from a table with whole powers of two added to its exponent, e^r is
// 1 + r + r²/2. Small enough for the compiler to inline.
func exp(x float32) float32 {
	if x < expMin {
		return 0
	}
	t := x*log2E64 + roundInt
	n := t - roundInt
	r := x - n*ln2Hi64 - n*ln2Lo64
	bits := math.Float32bits(t)
	power := math.Float32frombits(expTable[bits&63] + bits<<17)
	return power + power*(r+r*r*0.5)
}

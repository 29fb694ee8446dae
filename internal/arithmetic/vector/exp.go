package vector

import "math"

// The exponentials that the functions in this file compute have a relative error of at most 2^-22
// from -87.33654 to 88.37. Below that range, where e^x is less than the smallest normal number,
// the result is 0; above it, where e^x is at least 2^127.5, the result is +Inf. NaN stays NaN.
//
// x = n·ln 2 + r with |r| <= ln 2/2 and e^x = 2^n·e^r, where e^r is a polynomial of degree
// six. n is taken from the low bits of x·log2(e) + 1.5·2^23 and added directly to the
// exponent of 2^n. Plain Go uses a table instead.

// Exp sets x to scale·e^(x-shift).
func (s Set) Exp(x []float32, shift, scale float32) {
	if s != Portable {
		expScaled(s, first(x), len(x), shift, scale)
		return
	}
	for i, v := range x {
		x[i] = scale * exp(v-shift)
	}
}

// ExpAdd sets x to e^(x-top), and adds the result to total.
func (s Set) ExpAdd(x, top, total []float32) {
	top, total = top[:len(x)], total[:len(x)]
	if s != Portable {
		expAdd(s, first(x), first(top), first(total), len(x))
		return
	}
	for i, v := range x {
		p := exp(v - top[i])
		x[i] = p
		total[i] += p
	}
}

// ExpGrad sets p to e^(p-lse), and ds to scale·p·(ds-delta), using the new p.
func (s Set) ExpGrad(p, ds, lse, delta []float32, scale float32) {
	ds, lse, delta = ds[:len(p)], lse[:len(p)], delta[:len(p)]
	if s != Portable {
		expGrad(s, first(p), first(ds), first(lse), first(delta), len(p), scale)
		return
	}
	for i, v := range p {
		w := exp(v - lse[i])
		p[i] = w
		ds[i] = scale * w * (ds[i] - delta[i])
	}
}

// Rescale converts sums of exponentials relative to top to sums relative to next: it sets scale
// to e^(top-next), multiplies sum by scale, and sets top to next.
func (s Set) Rescale(scale, top, next, sum []float32) {
	top, next, sum = top[:len(scale)], next[:len(scale)], sum[:len(scale)]
	if s != Portable {
		rescale(s, first(scale), first(top), first(next), first(sum), len(scale))
		return
	}
	for i, v := range top {
		e := exp(v - next[i])
		scale[i] = e
		sum[i] *= e
		top[i] = next[i]
	}
}

// SumExp returns Σ e^(x-shift). The exponentials are computed in float32, and the sum in float64.
func (s Set) SumExp(x []float32, shift float32) float64 {
	if s != Portable {
		return sumExp(s, first(x), len(x), shift)
	}
	var part eighths
	for i, v := range x {
		part[i&7] += float64(exp(v - shift))
	}
	return part.sum()
}

// Largest returns the largest element that is not NaN, or -Inf if there is none.
func (s Set) Largest(x []float32) float32 {
	if s != Portable {
		return largest(s, first(x), len(x))
	}
	top := float32(math.Inf(-1))
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	return top
}

// The constants of exp. The upper part of ln 2 / 64 has 11 bits, so that its product with every
// possible n is exact.
const (
	log2E64  = 64 * math.Log2E
	ln2Hi64  = 1420.0 / (1 << 17)
	ln2Lo64  = math.Ln2/64 - ln2Hi64
	expMin   = -87.33654     // below it e^x is less than the smallest normal float32
	expMax   = 88.37         // above it the result is +Inf
	roundInt = 1<<23 + 1<<22 // added to |t| < 2^22, it leaves round(t) in the low bits
)

// expTable holds the bits of 2^(i/64), with i subtracted at the bits to which exp adds n.
var expTable = func() (table [64]uint32) {
	for i := range table {
		table[i] = math.Float32bits(float32(math.Exp2(float64(i)/64))) - uint32(i)<<17
	}
	return table
}()

// exp is the exponential in plain Go. x = n·ln 2/64 + r with |r| <= ln 2/128, and e^x =
// 2^(n/64)·e^r. The power is a table entry with whole powers of two added to its exponent, and
// e^r is 1 + r + r²/2.
func exp(x float32) float32 {
	if x < expMin {
		return 0
	}
	if x > expMax {
		return float32(math.Inf(1))
	}
	t := float32(x*log2E64) + roundInt
	n := t - roundInt
	r := x - float32(n*ln2Hi64) - float32(n*ln2Lo64)
	bits := math.Float32bits(t)
	power := math.Float32frombits(expTable[bits&63] + bits<<17)
	return power + float32(power*(r+float32(r*r*0.5)))
}

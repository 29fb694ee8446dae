package vector

import "math"

// The tanh form of GELU, x·(1 + tanh u)/2 with u = sqrt(2/π)·(x + 0.044715·x³), equals
// x·σ(2u) with the logistic function σ. This needs one exponential, and no difference of
// nearly equal numbers.
const (
	gelu1 = 1.5957691216057308 // 2·sqrt(2/π)
	gelu3 = gelu1 * 0.044715
)

// GELU sets y to gelu(x), with an error of at most 2^-21·|x|; y may be x. It computes max(x, 0) - |x|·σ(-|2u|).
// This equals x·σ(2u), but needs no branch on the sign, which would be hard to predict. The result for an
// infinity is NaN.
func (s Set) GELU(y, x []float32) {
	x = x[:len(y)]
	if s != Portable {
		gelu(s, first(y), first(x), len(y))
		return
	}
	for i, v := range x {
		e := exp(-abs(v * (gelu1 + float32(gelu3*v*v))))
		a := abs(v)
		y[i] = float32(0.5*v) + float32(0.5*a) - float32(a*(e/(1+e)))
	}
}

// abs returns |x|.
func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// GELUGrad sets dx to dy·gelu'(x), with an error of at most 2^-20·|dy|; dx may be dy. The
// derivative is σ(2u) + x·σ(2u)·σ(-2u)·(2u)'.
func (s Set) GELUGrad(dx, dy, x []float32) {
	dy, x = dy[:len(dx)], x[:len(dx)]
	if s != Portable {
		geluGrad(s, first(dx), first(dy), first(x), len(dx))
		return
	}
	for i, v := range x {
		z := v * (gelu1 + float32(gelu3*v*v))
		e := exp(-abs(z))
		s := 1 / (1 + e)    // σ(|2u|)
		r := float32(e * s) // 1 - s
		// 1/2 ± (1/2 - r) is s or r, depending on the sign of z.
		sign := math.Float32bits(z) & (1 << 31)
		slope := 0.5 + math.Float32frombits(math.Float32bits(0.5-r)^sign)
		if e != 0 { // otherwise r is 0, and its factor may be infinite
			slope += float32(v * s * r * (gelu1 + float32(3*gelu3*v*v)))
		}
		dx[i] = dy[i] * slope
	}
}

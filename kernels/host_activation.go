package kernels

import "math"

// The tanh form of GELU, x·(1 + tanh u)/2 with u = sqrt(2/π)·(x + 0.044715·x³),
// is x·σ(2u) with the logistic function σ: one exponential, and no difference
// of numbers that are nearly equal.
const (
	gelu1 = 1.5957691216057308 // 2·sqrt(2/π)
	gelu3 = gelu1 * 0.044715
)

// openGELU opens the buffers of GELU.
func openGELU(c *call, y, x Buffer) (out, in []float32) {
	out = c.floats("y", y, y.N)
	in = c.floats("x", x, y.N)
	return out, in
}

// GELU computes max(x, 0) - |x|·σ(-|2u|), which is x·σ(2u) without a branch on
// the sign, hard to foresee as it is. The error is at most 2^-21·|x|.
func (h *Host) GELU(y, x Buffer) error {
	c := h.call("GELU")
	out, in := openGELU(&c, y, x)
	if c.err != nil {
		return c.err
	}
	in = in[:len(out)]
	for i, v := range in {
		e := exp(-abs(v * (gelu1 + gelu3*v*v)))
		a := abs(v)
		out[i] = 0.5*v + 0.5*a - a*(e/(1+e))
	}
	return nil
}

// abs returns |x|.
func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// openGELUBackward opens the buffers of GELUBackward.
func openGELUBackward(c *call, dx, dy, x Buffer) (out, grad, in []float32) {
	out = c.floats("dx", dx, dx.N)
	grad = c.floats("dy", dy, dx.N)
	in = c.floats("x", x, dx.N)
	return out, grad, in
}

// GELUBackward multiplies by the derivative σ(2u) + x·σ(2u)·σ(-2u)·(2u)', to
// within 2^-20 of dy.
func (h *Host) GELUBackward(dx, dy, x Buffer) error {
	c := h.call("GELUBackward")
	out, grad, in := openGELUBackward(&c, dx, dy, x)
	if c.err != nil {
		return c.err
	}
	grad, in = grad[:len(out)], in[:len(out)]
	for i, v := range in {
		z := v * (gelu1 + gelu3*v*v)
		e := exp(-abs(z))
		s := 1 / (1 + e) // σ(|2u|)
		r := e * s       // 1 - s
		// 1/2 plus or minus 1/2 - r is s or r by the sign of z.
		sign := math.Float32bits(z) & (1 << 31)
		slope := 0.5 + math.Float32frombits(math.Float32bits(0.5-r)^sign)
		if e != 0 { // else r is 0, and what it multiplies may be infinite
			slope += v * s * r * (gelu1 + 3*gelu3*v*v)
		}
		out[i] = grad[i] * slope
	}
	return nil
}

package kernels

import "math"

// SumSquares adds up squares in float64, in ascending order.
func (h *Host) SumSquares(x Buffer) (float64, error) {
	c := h.call("SumSquares")
	var total float64
	for _, v := range c.floats("x", x, x.N) {
		total += float64(v) * float64(v)
	}
	return total, c.err
}

// adamViews are the opened buffers of AdamW.
type adamViews struct{ weight, grad, m, v []float32 }

func openAdamW(c *call, op AdamW) (v adamViews) {
	if op.Step < 1 {
		c.fault(ErrValue, "Step is %d, want at least 1", op.Step)
	}
	if !(op.Beta1 >= 0 && op.Beta1 < 1) {
		c.fault(ErrValue, "Beta1 is %v, want 0 <= Beta1 < 1", op.Beta1)
	}
	if !(op.Beta2 >= 0 && op.Beta2 < 1) {
		c.fault(ErrValue, "Beta2 is %v, want 0 <= Beta2 < 1", op.Beta2)
	}
	n := op.Weight.N
	v.weight = c.floats("Weight", op.Weight, n)
	v.grad = c.floats("Grad", op.Grad, n)
	v.m = c.floats("M", op.M, n)
	v.v = c.floats("V", op.V, n)
	c.apart("Weight", op.Weight, op.Grad, op.M, op.V)
	c.apart("M", op.M, op.Grad, op.V)
	c.apart("V", op.V, op.Grad)
	return v
}

// AdamW updates Weight, M and V. With g = Factor·Grad:
//
//	m = β1·m + (1-β1)·g    v = β2·v + (1-β2)·g²
//	w = w - lr·(m/(1-β1^t) / (sqrt(v/(1-β2^t)) + ε) + decay·w)
func (h *Host) AdamW(op AdamW) error {
	c := h.call("AdamW")
	v := openAdamW(&c, op)
	if c.err != nil {
		return c.err
	}
	beta1, beta2 := op.Beta1, op.Beta2
	rest1, rest2 := float32(1-float64(beta1)), float32(1-float64(beta2))
	correct1 := float32(1 / (1 - math.Pow(float64(beta1), float64(op.Step))))
	correct2 := float32(1 / (1 - math.Pow(float64(beta2), float64(op.Step))))
	w, grad, m1, m2 := v.weight, v.grad[:len(v.weight)], v.m[:len(v.weight)], v.v[:len(v.weight)]
	for i, old := range w {
		g := op.Factor * grad[i]
		a := beta1*m1[i] + rest1*g
		b := beta2*m2[i] + rest2*g*g
		m1[i], m2[i] = a, b
		// A float32 square root: exact rounding makes the detour the same.
		root := float32(math.Sqrt(float64(b * correct2)))
		w[i] = old - op.LearningRate*(a*correct1/(root+op.Epsilon)+op.WeightDecay*old)
	}
	return nil
}

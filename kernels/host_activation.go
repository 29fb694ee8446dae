package kernels

// openGELU opens the buffers of GELU.
func openGELU(c *call, y, x Buffer) (out, in []float32) {
	out = c.floats("y", y, y.N)
	in = c.floats("x", x, y.N)
	return out, in
}

// GELU computes it to within 2^-21·|x|.
func (h *Host) GELU(y, x Buffer) error {
	c := h.call("GELU")
	out, in := openGELU(&c, y, x)
	if c.err == nil {
		h.elements(elementsTask{dst: out, x: in, run: func(t *elementsTask, i, j int) { t.set.GELU(t.dst[i:j], t.x[i:j]) }})
	}
	return c.err
}

// openGELUBackward opens the buffers of GELUBackward.
func openGELUBackward(c *call, dx, dy, x Buffer) (out, grad, in []float32) {
	out = c.floats("dx", dx, dx.N)
	grad = c.floats("dy", dy, dx.N)
	in = c.floats("x", x, dx.N)
	return out, grad, in
}

// GELUBackward multiplies by the derivative, to within 2^-20 of dy.
func (h *Host) GELUBackward(dx, dy, x Buffer) error {
	c := h.call("GELUBackward")
	out, grad, in := openGELUBackward(&c, dx, dy, x)
	if c.err == nil {
		h.elements(elementsTask{dst: out, x: in, y: grad, run: func(t *elementsTask, i, j int) { t.set.GELUGrad(t.dst[i:j], t.y[i:j], t.x[i:j]) }})
	}
	return c.err
}

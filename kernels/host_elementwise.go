package kernels

// Zero sets every element of x to 0.
func (h *Host) Zero(x Buffer) error {
	c := h.call("Zero")
	h.zero(c.floats("x", x, x.N))
	return c.err
}

// zero clears x.
func (h *Host) zero(x []float32) {
	h.elements(elementsTask{dst: x, run: func(t *elementsTask, i, j int) { clear(t.dst[i:j]) }})
}

// openPair opens two buffers of the same number of elements.
func openPair(c *call, dst, src Buffer) (d, s []float32) {
	d = c.floats("dst", dst, dst.N)
	s = c.floats("src", src, dst.N)
	return d, s
}

// Copy sets dst to src.
func (h *Host) Copy(dst, src Buffer) error {
	c := h.call("Copy")
	d, s := openPair(&c, dst, src)
	if c.err == nil {
		h.elements(elementsTask{dst: d, x: s, run: func(t *elementsTask, i, j int) { copy(t.dst[i:j], t.x[i:j]) }})
	}
	return c.err
}

// Add adds src to dst.
func (h *Host) Add(dst, src Buffer) error {
	c := h.call("Add")
	d, s := openPair(&c, dst, src)
	if c.err == nil {
		h.add(d, s)
	}
	return c.err
}

// add adds src to dst.
func (h *Host) add(dst, src []float32) {
	h.elements(elementsTask{dst: dst, x: src, run: func(t *elementsTask, i, j int) { t.set.Add(t.dst[i:j], t.x[i:j]) }})
}

// openSum opens the buffers of Sum.
func openSum(c *call, dst, a, b Buffer) (d, x, y []float32) {
	d = c.floats("dst", dst, dst.N)
	x = c.floats("a", a, dst.N)
	y = c.floats("b", b, dst.N)
	return d, x, y
}

// Sum sets dst to a + b.
func (h *Host) Sum(dst, a, b Buffer) error {
	c := h.call("Sum")
	d, x, y := openSum(&c, dst, a, b)
	if c.err != nil {
		return c.err
	}
	h.elements(elementsTask{dst: d, x: x, y: y, run: func(t *elementsTask, i, j int) { t.set.Sum(t.dst[i:j], t.x[i:j], t.y[i:j]) }})
	return nil
}

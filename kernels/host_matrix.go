package kernels

// openMatMul opens the buffers of MatMul.
func openMatMul(c *call, op MatMul) (x, y, z []float32) {
	c.dimension("M", op.M)
	c.dimension("N", op.N)
	c.dimension("K", op.K)
	x = c.floats("A", op.A, size(op.M, op.K))
	y = c.floats("B", op.B, size(op.K, op.N))
	z = c.floats("C", op.C, size(op.M, op.N))
	c.apart("C", op.C, op.A, op.B)
	return x, y, z
}

// MatMul computes the product on the threads of the device. With AVX2 and AVX512 a
// product and its addition are one rounding, in Portable two. The error is at most
// γ(K+1)·(|c| + Σ|a|·|b|) + (K+1)·2^-150, γ(n) being n·u/(1-n·u) and u 2^-24, where
// nothing overflows.
func (h *Host) MatMul(op MatMul) error {
	c := h.call("MatMul")
	x, y, z := openMatMul(&c, op)
	if c.err != nil {
		return c.err
	}
	a := matrix{data: x, ld: op.K, trans: op.TransA}
	if op.TransA {
		a.ld = op.M
	}
	b := matrix{data: y, ld: op.N, trans: op.TransB}
	if op.TransB {
		b.ld = op.K
	}
	h.product.multiply(op.M, op.N, op.K, a, b, z, op.N, op.Accumulate)
	return nil
}

// openAddRow opens the buffers of AddRow.
func openAddRow(c *call, x, b Buffer, rows, cols int) (dst, row []float32) {
	c.dimension("rows", rows)
	c.dimension("cols", cols)
	dst = c.floats("x", x, size(rows, cols))
	row = c.floats("b", b, cols)
	c.apart("x", x, b)
	return dst, row
}

// AddRow adds b to each row of x.
func (h *Host) AddRow(x, b Buffer, rows, cols int) error {
	c := h.call("AddRow")
	dst, row := openAddRow(&c, x, b, rows, cols)
	if c.err != nil {
		return c.err
	}
	for ; len(dst) > 0; dst = dst[cols:] {
		h.vector.Add(dst[:cols], row)
	}
	return nil
}

// openSumRows opens the buffers of SumRows.
func openSumRows(c *call, dst, x Buffer, rows, cols int) (sum, src []float32) {
	c.dimension("rows", rows)
	c.dimension("cols", cols)
	sum = c.floats("dst", dst, cols)
	src = c.floats("x", x, size(rows, cols))
	c.apart("dst", dst, x)
	return sum, src
}

// SumRows adds up the rows of x in ascending order.
func (h *Host) SumRows(dst, x Buffer, rows, cols int, accumulate bool) error {
	c := h.call("SumRows")
	sum, src := openSumRows(&c, dst, x, rows, cols)
	if c.err != nil {
		return c.err
	}
	if !accumulate {
		clear(sum)
	}
	for ; len(src) > 0; src = src[cols:] {
		h.vector.Add(sum, src[:cols])
	}
	return nil
}

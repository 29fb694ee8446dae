package kernels

import "github.com/weir-ml/weir/internal/vector"

// matMulViews are the opened buffers of MatMul. bias is nil where there is none.
type matMulViews struct{ a, b, c, bias []float32 }

func openMatMul(c *call, op MatMul) (v matMulViews) {
	c.dimension("M", op.M)
	c.dimension("N", op.N)
	c.dimension("K", op.K)
	v.a = c.floats("A", op.A, size(op.M, op.K))
	v.b = c.floats("B", op.B, size(op.K, op.N))
	v.c = c.floats("C", op.C, size(op.M, op.N))
	v.bias = c.optional("Bias", op.Bias, op.N)
	c.apart("C", op.C, op.A, op.B, op.Bias)
	return v
}

// MatMul computes the product on the threads of the device. With AVX2 and AVX512 a
// product and its addition are one rounding, in Portable two. The error is at most
// γ(K+1)·(|c| + Σ|a|·|b|) + (K+1)·2^-150, γ(n) being n·u/(1-n·u) and u 2^-24, where
// nothing overflows.
func (h *Host) MatMul(op MatMul) error {
	c := h.call("MatMul")
	v := openMatMul(&c, op)
	if c.err != nil {
		return c.err
	}
	a := matrix{data: v.a, ld: op.K, trans: op.TransA}
	if op.TransA {
		a.ld = op.M
	}
	b := matrix{data: v.b, ld: op.N, trans: op.TransB}
	if op.TransB {
		b.ld = op.K
	}
	h.product.bias, h.product.vector = v.bias, h.vector
	h.product.multiply(op.M, op.N, op.K, a, b, v.c, op.N, op.Accumulate)
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
	t := addRowTask{set: h.vector, x: dst, row: row, parts: partsOf(len(dst))}
	launch(h, &h.operations.addRow, t, t.parts)
	return nil
}

// addRowTask is AddRow in parts of rows.
type addRowTask struct {
	set    vector.Set
	x, row []float32
	parts  int
}

func (t *addRowTask) part(i int, _ *worker) {
	cols := len(t.row)
	begin, end := share(len(t.x)/cols, 1, i, t.parts)
	for r := begin; r < end; r++ {
		t.set.Add(t.x[r*cols:][:cols], t.row)
	}
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
	t := sumRowsTask{set: h.vector, sum: sum, x: src, first: !accumulate, parts: h.columnParts(len(src), cols)}
	launch(h, &h.operations.sumRows, t, t.parts)
	return nil
}

// sumRowsTask is SumRows in parts of columns.
type sumRowsTask struct {
	set    vector.Set
	sum, x []float32
	first  bool
	parts  int
}

func (t *sumRowsTask) part(i int, _ *worker) {
	cols := len(t.sum)
	begin, end := share(cols, 16, i, t.parts)
	sum := t.sum[begin:end]
	if t.first {
		clear(sum)
	}
	for at := begin; at < len(t.x); at += cols {
		t.set.Add(sum, t.x[at:])
	}
}

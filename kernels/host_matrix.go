package kernels

import "github.com/weir-ml/weir/internal/arithmetic/gemm"

// MatMul computes the product on the device's threads. A multiplication and its addition round
// once with AVX2, AVX512 and NEON, and twice with Portable. If nothing overflows, the error before
// Bias is added is at most γ(K+1)·(|c| + Σ|a|·|b|) + (K+1)·2^-150, where γ(n) is n·u/(1-n·u) and u
// is 2^-24.
func (h *host) MatMul(op MatMul) error {
	c := h.call("MatMul")
	c.dimensions("M N K", op.M, op.N, op.K)
	a := gemm.Matrix{Data: c.floats("A", op.A, size(op.M, op.K)), Stride: op.K, Trans: op.TransA}
	b := gemm.Matrix{Data: c.floats("B", op.B, size(op.K, op.N)), Stride: op.N, Trans: op.TransB}
	to := c.floats("C", op.C, size(op.M, op.N))
	bias := c.optional("Bias", op.Bias, op.N)
	c.apart("C", op.C, op.A, op.B, op.Bias)
	if c.done() {
		return c.err
	}
	if op.TransA {
		a.Stride = op.M
	}
	if op.TransB {
		b.Stride = op.K
	}
	h.product.bias = bias
	h.product.multiply(op.M, op.N, op.K, a, b, to, op.N, op.Accumulate)
	return nil
}

// AddRow adds b to each row of x.
func (h *host) AddRow(x, b Buffer, rows, cols int) error {
	c := h.call("AddRow")
	c.dimensions("rows cols", rows, cols)
	t := addRowTask{x: c.floats("x", x, size(rows, cols)), row: c.floats("b", b, cols)}
	c.apart("x", x, b)
	if c.done() {
		return c.err
	}
	launch(h, &h.operations.addRow, t, partsOf(len(t.x)))
	return nil
}

// addRowTask computes AddRow. Its parts are ranges of rows.
type addRowTask struct{ x, row []float32 }

func (t *addRowTask) part(i, parts int, w *worker) {
	cols := len(t.row)
	begin, end := share(len(t.x)/cols, 1, i, parts)
	for r := begin; r < end; r++ {
		w.vector.Add(t.x[r*cols:][:cols], t.row)
	}
}

// SumRows adds the rows of x in ascending order.
func (h *host) SumRows(dst, x Buffer, rows, cols int, accumulate bool) error {
	c := h.call("SumRows")
	c.dimensions("rows cols", rows, cols)
	t := sumRowsTask{sum: c.floats("dst", dst, cols), x: c.floats("x", x, size(rows, cols)), first: !accumulate}
	c.apart("dst", dst, x)
	if c.done() {
		return c.err
	}
	launch(h, &h.operations.sumRows, t, h.columnParts(len(t.x), cols))
	return nil
}

// sumRowsTask computes SumRows. Its parts are ranges of columns.
type sumRowsTask struct {
	sum, x []float32
	first  bool
}

func (t *sumRowsTask) part(i, parts int, w *worker) {
	cols := len(t.sum)
	begin, end := share(cols, 16, i, parts)
	sum := t.sum[begin:end]
	if t.first {
		clear(sum)
	}
	for at := begin; at < len(t.x); at += cols {
		w.vector.Add(sum, t.x[at:])
	}
}

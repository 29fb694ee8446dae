package kernels

import (
	"github.com/weir-ml/weir/internal/float8"
	"github.com/weir-ml/weir/internal/vector"
)

// quantizedMatMulViews are the opened buffers of QuantizedMatMul. bias is nil where there
// is none.
type quantizedMatMulViews struct {
	a, b               float8.Matrix
	c, bias, workspace []float32
}

func openQuantizedMatMul(c *call, op QuantizedMatMul, need int) (v quantizedMatMulViews) {
	c.dimension("M", op.M)
	c.dimension("N", op.N)
	c.dimension("K", op.K)
	v.a = c.quantized("A", op.A, op.M, op.K)
	v.b = c.quantized("B", op.B, op.N, op.K)
	v.c = c.floats("C", op.C, size(op.M, op.N))
	v.bias = c.optional("Bias", op.Bias, op.N)
	v.workspace = c.roomy("Workspace", op.Workspace, need)
	c.apart("C", op.C, op.A.Data, op.B.Data, op.Bias, op.Workspace)
	c.apart("Workspace", op.Workspace, op.A.Data, op.B.Data, op.Bias)
	return v
}

// QuantizedWorkspace returns what decoded blocks of A and B take for each thread.
func (h *Host) QuantizedWorkspace(_, n, k int) int {
	return float8.Scratch(max(n, 0), max(k, 0)) * h.crew.threads()
}

// QuantizedMatMul computes the product in parts of the longer side of C.
func (h *Host) QuantizedMatMul(op QuantizedMatMul) error {
	c := h.call("QuantizedMatMul")
	v := openQuantizedMatMul(&c, op, h.QuantizedWorkspace(op.M, op.N, op.K))
	if c.err != nil {
		return c.err
	}
	t := quantizedMatMulTask{quantizedMatMulViews: v, set: h.float8(), vector: h.vector, m: op.M, n: op.N, first: !op.Accumulate}
	t.byRows, t.parts = cut(op.M, op.N, op.K, h.crew.threads())
	launch(h, &h.operations.quantizedMatMul, t, t.parts)
	return nil
}

// cut chooses the parts of a product; see multiplication.cut.
func cut(m, n, k, threads int) (byRows bool, parts int) {
	const (
		worth  = 1 << 19
		narrow = 32
		wide   = 256
	)
	if threads == 1 {
		return true, 1
	}
	side := max(m, n)
	parts = max(min(threads, side/narrow), min(4*threads, side/wide))
	return m > n, max(1, min(parts, size(size(m, n), k)/worth))
}

// quantizedMatMulTask is QuantizedMatMul.
type quantizedMatMulTask struct {
	quantizedMatMulViews
	set    float8.Set
	vector vector.Set
	m, n   int
	first  bool
	byRows bool
	parts  int
}

func (t *quantizedMatMulTask) part(i int, w *worker) {
	row, rows, col, cols := 0, t.m, 0, t.n
	if t.byRows {
		row, rows = t.m*i/t.parts, t.m*(i+1)/t.parts-t.m*i/t.parts
	} else {
		col, cols = t.n*i/t.parts, t.n*(i+1)/t.parts-t.n*i/t.parts
	}
	c := t.c[row*t.n+col:]
	each := float8.Scratch(t.n, t.a.Cols)
	scratch := t.workspace[w.index*each:][:each]
	t.set.Multiply(c, t.n, &t.a, &t.b, row, rows, col, cols, t.first, scratch)
	if t.bias != nil {
		for r := range rows {
			t.vector.Add(c[r*t.n:][:cols], t.bias[col:])
		}
	}
}

package kernels

import "github.com/weir-ml/weir/internal/arithmetic/float8"

// QuantizedWorkspace returns the number of elements for each thread's decoded blocks of A and B.
func (h *host) QuantizedWorkspace(m, n, k int) int {
	if h.target != nil {
		return h.target.QuantizedWorkspace(m, n, k)
	}
	return float8.Scratch(max(n, 0), max(k, 0)) * h.crew.threads()
}

// QuantizedMatMul divides the product along the longer side of C.
func (h *host) QuantizedMatMul(op QuantizedMatMul) error {
	c := h.call("QuantizedMatMul")
	c.dimensions("M N K", op.M, op.N, op.K)
	t := quantizedMatMulTask{
		a: c.quantized("A", op.A, op.M, op.K), b: c.quantized("B", op.B, op.N, op.K), c: c.floats("C", op.C, size(op.M, op.N)),
		bias: c.optional("Bias", op.Bias, op.N), workspace: roomy[float32](&c, "Workspace", op.Workspace, h.QuantizedWorkspace(op.M, op.N, op.K)),
		m: op.M, n: op.N, first: !op.Accumulate,
	}
	c.apart("C", op.C, op.A.Data, op.B.Data, op.Bias, op.Workspace)
	c.apart("Workspace", op.Workspace, op.A.Data, op.B.Data, op.Bias)
	if c.done() {
		return c.err
	}
	var parts int
	t.byRows, parts = cut(op.M, op.N, op.K, h.crew.threads())
	launch(h, &h.operations.quantizedMatMul, t, parts)
	return nil
}

// cut chooses how a product is divided; see multiplication.cut.
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

// quantizedMatMulTask computes QuantizedMatMul.
type quantizedMatMulTask struct {
	a, b               float8.Matrix
	c, bias, workspace []float32
	m, n               int
	first              bool
	byRows             bool
}

func (t *quantizedMatMulTask) part(i, parts int, w *worker) {
	row, rows, col, cols := 0, t.m, 0, t.n
	if t.byRows {
		row, rows = t.m*i/parts, t.m*(i+1)/parts-t.m*i/parts
	} else {
		col, cols = t.n*i/parts, t.n*(i+1)/parts-t.n*i/parts
	}
	c := t.c[row*t.n+col:]
	each := float8.Scratch(t.n, t.a.Cols)
	scratch := t.workspace[w.index*each:][:each]
	float8.Set(w.vector).Multiply(c, t.n, &t.a, &t.b, row, rows, col, cols, t.first, scratch)
	if t.bias != nil {
		for r := range rows {
			w.vector.Add(c[r*t.n:][:cols], t.bias[col:])
		}
	}
}

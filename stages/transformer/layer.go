package transformer

import (
	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
)

// linear is y = x·weight + bias over rows. The uses are the numbers of the
// parameters in their stage.
type linear struct {
	weight, bias       kernels.Buffer
	weightUse, biasUse batchctx.Param
	in, out            int
}

// norm is a layer norm over the width.
type norm struct {
	gain, bias       kernels.Buffer
	gainUse, biasUse batchctx.Param
}

// statistics are what a layer norm's backward needs in addition to its input.
type statistics struct{ mean, rstd kernels.Buffer }

func (c *call) linear(y, x kernels.Buffer, l *linear, rows int) {
	c.mb.Check(c.dev.MatMul(kernels.MatMul{A: x, B: l.weight, Bias: l.bias, C: y, M: rows, N: l.out, K: l.in}))
}

// linearWeights contributes xᵀ·dy and the column sums of dy to the gradients.
func (c *call) linearWeights(x, dy kernels.Buffer, l *linear, rows int) {
	if g, accumulate := c.grad(l.weightUse); g != (kernels.Buffer{}) {
		c.mb.Check(c.dev.MatMul(kernels.MatMul{A: x, B: dy, C: g, M: l.in, N: l.out, K: rows, TransA: true, Accumulate: accumulate}))
	}
	if g, accumulate := c.grad(l.biasUse); g != (kernels.Buffer{}) {
		c.mb.Check(c.dev.SumRows(g, dy, rows, l.out, accumulate))
	}
}

// linearInput sets dx to dy·weightᵀ.
func (c *call) linearInput(dx, dy kernels.Buffer, l *linear, rows int) {
	c.mb.Check(c.dev.MatMul(kernels.MatMul{A: dy, B: l.weight, C: dx, M: rows, N: l.in, K: l.out, TransB: true}))
}

// norm sets y to the normalised x. The statistics are the caller's to free.
func (c *call) norm(y, x kernels.Buffer, n *norm, rows int) statistics {
	s := statistics{mean: c.workspace(rows), rstd: c.workspace(rows)}
	c.mb.Check(c.dev.LayerNorm(kernels.LayerNorm{
		X: x, Gamma: n.gain, Beta: n.bias, Y: y, Mean: s.mean, RStd: s.rstd, Rows: rows, Cols: x.N / rows,
	}))
	return s
}

// normBackward contributes to the gradients of gain and bias, and sets dx, which
// may be none.
func (c *call) normBackward(dx, dy, x kernels.Buffer, s statistics, n *norm, rows int) {
	gain, addGain := c.grad(n.gainUse)
	bias, addBias := c.grad(n.biasUse)
	var none kernels.Buffer
	if dx == none && gain == none && bias == none {
		return
	}
	c.mb.Check(c.dev.LayerNormBackward(kernels.LayerNormBackward{
		DY: dy, X: x, Gamma: n.gain, Mean: s.mean, RStd: s.rstd,
		DX: dx, DGamma: gain, DBeta: bias, Rows: rows, Cols: x.N / rows,
		AccumulateGamma: addGain, AccumulateBeta: addBias,
	}))
}

func (c *call) freeStatistics(s statistics) {
	c.free(s.rstd)
	c.free(s.mean)
}

// drops reports whether the place drops anything in this pass.
func (c *call) drops(d *dropout) bool { return d.p > 0 && c.mb.Pass() != batchctx.Eval }

// dropout sets y to x with elements dropped. The backward is the same call on the
// gradient.
func (c *call) dropout(y, x kernels.Buffer, d *dropout) {
	c.mb.Check(c.dev.Dropout(y, x, d.p, kernels.Key{
		Seed: c.mb.Seed(), Step: c.mb.Step(), Microbatch: c.mb.Global(), Op: d.op,
	}))
}

// dropoutInPlace drops elements of x where this pass drops any.
func (c *call) dropoutInPlace(x kernels.Buffer, d *dropout) {
	if c.drops(d) {
		c.dropout(x, x, d)
	}
}

// dropoutBackward returns the gradient before the dropout: a workspace, or dy
// itself where nothing was dropped. freeDropped releases it.
func (c *call) dropoutBackward(dy kernels.Buffer, d *dropout) kernels.Buffer {
	if !c.drops(d) {
		return dy
	}
	dx := c.workspace(dy.N)
	c.dropout(dx, dy, d)
	return dx
}

func (c *call) freeDropped(dx, dy kernels.Buffer) {
	if dx != dy {
		c.free(dx)
	}
}

// add adds src to dst.
func (c *call) add(dst, src kernels.Buffer) {
	c.mb.Check(c.dev.Add(dst, src))
}

func (c *call) gelu(y, x kernels.Buffer) {
	c.mb.Check(c.dev.GELU(y, x))
}

// geluBackward turns the gradient of gelu(x) into that of x.
func (c *call) geluBackward(d, x kernels.Buffer) {
	c.mb.Check(c.dev.GELUBackward(d, d, x))
}

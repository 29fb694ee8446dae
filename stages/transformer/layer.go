package transformer

import (
	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// layer is a linear layer of a block, y = x·weight + bias for each row, in float32 or in FP8.
type layer interface {
	// forward returns y in a new buffer of the given class. It takes ownership of x, and saves x
	// in the slot for the backward, or releases it if the slot is 0.
	forward(c *call, class memory.Class, x kernels.Buffer, slot batchctx.Slot, rows int) kernels.Buffer
	// gradient converts dy to the form that backward needs. It takes ownership of dy, unless dy
	// is lent.
	gradient(c *call, d gradient, rows int) gradient
	// input returns the input that forward has saved in the slot.
	input(c *call, slot batchctx.Slot, rows int) operand
	// readsInput reports whether backward reads x.
	readsInput(c *call) bool
	// backward contributes to the gradients of the parameters, or leaves that to W. It returns
	// the gradient of the input in dx, which may be x, or in a new workspace if dx is zero.
	backward(c *call, dx kernels.Buffer, x operand, d gradient, rows int) kernels.Buffer
	// trains reports whether weight or bias is not frozen.
	trains(mb batchctx.Microbatch[kernels.Buffer]) bool
	// weightGradients computes W in float32 from the input and the gradient of the output.
	weightGradients(c *call, x, dy kernels.Buffer, rows int)
}

// operand is the input of a layer; in FP8 it may be only the columnwise half.
type operand struct {
	x   kernels.Buffer
	low fp8.Tensor
}

// gradient is the gradient of a layer's output, quantized in FP8. The last user of dy leaves it
// in the slot for W or releases it, unless it is lent.
type gradient struct {
	dy   kernels.Buffer
	slot batchctx.Slot
	lent bool
	low  fp8.Tensor
}

// endGradient releases the float32 buffer of a gradient, or leaves it for W.
func (c *call) endGradient(d *gradient) {
	if !d.lent {
		c.leave(d.slot, d.dy)
	}
}

// linear is a layer in float32. A use is the number of a parameter in the layer's stage.
type linear struct {
	weightUse, biasUse batchctx.Param
	in, out            int
}

// norm is a layer norm over the width.
type norm struct {
	gainUse, biasUse batchctx.Param
	// In FP8, the slots of the gradients that I leaves for W.
	gainSum, biasSum batchctx.Slot
}

// statistics holds the values that a layer norm's backward needs in addition to its input.
type statistics struct{ mean, rstd kernels.Buffer }

func (l *linear) forward(c *call, class memory.Class, x kernels.Buffer, slot batchctx.Slot, rows int) kernels.Buffer {
	y := c.alloc(class, rows*l.out)
	c.mb.Check(c.dev.MatMul(kernels.MatMul{A: x, B: c.mb.Weight(l.weightUse), Bias: c.mb.Weight(l.biasUse), C: y, M: rows, N: l.out, K: l.in}))
	if slot != 0 {
		c.save(slot, x)
	} else {
		c.free(x)
	}
	return y
}

func (l *linear) gradient(_ *call, d gradient, _ int) gradient { return d }

func (l *linear) input(c *call, slot batchctx.Slot, _ int) operand {
	return operand{x: c.mb.Take(slot)}
}

func (l *linear) readsInput(c *call) bool { return !c.split.input && !c.mb.Frozen(l.weightUse) }

func (l *linear) backward(c *call, dx kernels.Buffer, x operand, d gradient, rows int) kernels.Buffer {
	l.weightGradients(c, x.x, d.dy, rows)
	if dx == (kernels.Buffer{}) {
		dx = c.workspace(rows * l.in)
	}
	c.mb.Check(c.dev.MatMul(kernels.MatMul{A: d.dy, B: c.mb.Weight(l.weightUse), C: dx, M: rows, N: l.in, K: l.out, TransB: true}))
	c.endGradient(&d)
	return dx
}

func (l *linear) trains(mb batchctx.Microbatch[kernels.Buffer]) bool {
	return trains(mb, l.weightUse, l.biasUse)
}

// weightGradients adds xᵀ·dy and the column sums of dy to the gradients.
func (l *linear) weightGradients(c *call, x, dy kernels.Buffer, rows int) {
	if g, accumulate := c.grad(l.weightUse); g != (kernels.Buffer{}) {
		c.mb.Check(c.dev.MatMul(kernels.MatMul{A: x, B: dy, C: g, M: l.in, N: l.out, K: rows, TransA: true, Accumulate: accumulate}))
	}
	if g, accumulate := c.grad(l.biasUse); g != (kernels.Buffer{}) {
		c.mb.Check(c.dev.SumRows(g, dy, rows, l.out, accumulate))
	}
}

// normed returns the output of a layer for the normalized x. The caller still owns x.
func (c *call) normed(l layer, class memory.Class, x kernels.Buffer, n *norm, rows int) kernels.Buffer {
	normed := c.workspace(x.N)
	c.freeStatistics(c.norm(normed, x, n, rows))
	return l.forward(c, class, normed, 0, rows)
}

// norm sets y to the normalized x. The caller frees the statistics.
func (c *call) norm(y, x kernels.Buffer, n *norm, rows int) statistics {
	s := statistics{mean: c.workspace(rows), rstd: c.workspace(rows)}
	c.mb.Check(c.dev.LayerNorm(kernels.LayerNorm{
		X: x, Gamma: c.mb.Weight(n.gainUse), Beta: c.mb.Weight(n.biasUse), Y: y, Mean: s.mean, RStd: s.rstd, Rows: rows, Cols: x.N / rows,
	}))
	return s
}

// normBackward contributes to the gradients of gain and bias, and sets dx, which may be zero.
func (c *call) normBackward(dx, dy, x kernels.Buffer, s statistics, n *norm, rows int) {
	op := kernels.LayerNormBackward{DY: dy, X: x, Gamma: c.mb.Weight(n.gainUse), Mean: s.mean, RStd: s.rstd, DX: dx, Rows: rows, Cols: x.N / rows}
	var none kernels.Buffer
	if n.gainSum != 0 {
		op.DGamma, op.DBeta = c.sum(n.gainUse, op.Cols), c.sum(n.biasUse, op.Cols)
	} else {
		op.DGamma, op.AccumulateGamma = c.grad(n.gainUse)
		op.DBeta, op.AccumulateBeta = c.grad(n.biasUse)
	}
	if op.DX != none || op.DGamma != none || op.DBeta != none {
		c.mb.Check(c.dev.LayerNormBackward(op))
	}
	if n.gainSum != 0 {
		c.contribute(n.gainUse, n.gainSum, op.DGamma)
		c.contribute(n.biasUse, n.biasSum, op.DBeta)
	}
}

func (c *call) freeStatistics(s statistics) {
	c.free(s.rstd)
	c.free(s.mean)
}

// drops reports whether the dropout is active in this pass.
func (c *call) drops(d *dropout) bool { return d.p > 0 && c.mb.Pass() != batchctx.Eval }

// dropout sets y to x with elements dropped. The backward is the same call on the gradient.
func (c *call) dropout(y, x kernels.Buffer, d *dropout) {
	for _, s := range c.spans(y.N / d.width) {
		c.mb.Check(c.dev.Dropout(c.rows(y, s, d.width), c.rows(x, s, d.width), d.p, kernels.Key{
			Seed: c.mb.Seed(), Step: c.mb.Step(), Microbatch: int64(s.number), Op: d.op,
		}))
	}
}

// dropoutInPlace drops elements of x if this pass drops any.
func (c *call) dropoutInPlace(x kernels.Buffer, d *dropout) {
	if c.drops(d) {
		c.dropout(x, x, d)
	}
}

// dropoutBackward returns the gradient before the dropout: a workspace, or dy itself if nothing
// was dropped. freeDropped releases it.
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

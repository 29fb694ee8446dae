package transformer

import (
	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// fp8Linear is a linear layer whose three products have FP8 operands:
//
//	y  = x·weight   of x rowwise and weight columnwise
//	dx = dy·weightᵀ of dy rowwise and weight rowwise
//	dw = xᵀ·dy      of both columnwise, summed in float32
//
// Weight and bias are float32; the bias and its gradient are never quantized.
type fp8Linear struct {
	*linear
	name                      string
	inputs, weights, grads    quantity
	keepsInput                bool // the input is kept in FP8 for the backward
	forwardCopy, backwardCopy batchctx.Copy
	// The slots that I leaves for W: the input and the gradient of the output, both columnwise,
	// and the gradient of the bias.
	inputSlot, gradSlot, biasSum batchctx.Slot
}

func (l *fp8Linear) forward(c *call, class memory.Class, x kernels.Buffer, slot batchctx.Slot, rows int) kernels.Buffer {
	usage := fp8.Rowwise
	if l.keepsInput {
		usage |= fp8.Columnwise
	}
	low := c.quantize(x, &l.inputs, rows, usage)
	if slot != 0 && !l.keepsInput {
		c.save(slot, x)
	} else {
		c.free(x)
	}
	y := c.alloc(class, rows*l.out)
	c.quantizedMatMul(kernels.QuantizedMatMul{
		A: c.rowwise(&low), B: kernels.Quantized{Data: c.mb.WeightCopy(l.forwardCopy), Encoding: l.weights.encoding, Rows: l.out, Cols: l.in},
		C: y, Bias: c.mb.Weight(l.biasUse), M: rows, N: l.out, K: l.in,
	})
	if l.keepsInput {
		c.keepColumnwise(&low)
		c.saveTensor(batchctx.ByBackward, slot, &low)
	} else {
		c.release(&low)
	}
	return y
}

// gradient quantizes dy, and contributes to the gradient of the bias.
func (l *fp8Linear) gradient(c *call, d gradient, rows int) gradient {
	if sum := c.sum(l.biasUse, l.out); sum != (kernels.Buffer{}) {
		c.mb.Check(c.dev.SumRows(sum, d.dy, rows, l.out, false))
		c.contribute(l.biasUse, l.biasSum, sum)
	}
	usage := fp8.Rowwise
	if l.readsInput(c) {
		usage |= fp8.Columnwise
	}
	d.low = c.quantize(d.dy, &l.grads, rows, usage)
	c.endGradient(&d)
	return d
}

func (l *fp8Linear) input(c *call, slot batchctx.Slot, rows int) (x operand) {
	if !l.keepsInput {
		return l.linear.input(c, slot, rows)
	}
	x.low = c.takeTensor(slot, &l.inputs, rows, fp8.Columnwise)
	x.x = c.workspace(rows * l.in)
	c.dequantize(x.x, &x.low)
	if !l.readsInput(c) {
		c.release(&x.low)
	}
	return x
}

func (l *fp8Linear) readsInput(c *call) bool { return !c.mb.Frozen(l.weightUse) }

func (l *fp8Linear) backward(c *call, dx kernels.Buffer, x operand, d gradient, rows int) kernels.Buffer {
	if l.readsInput(c) && x.low.Usage() == 0 {
		x.low = c.quantize(x.x, &l.inputs, rows, fp8.Columnwise)
	}
	if dx == (kernels.Buffer{}) {
		dx = c.workspace(rows * l.in)
	}
	c.quantizedMatMul(kernels.QuantizedMatMul{
		A: c.rowwise(&d.low), B: kernels.Quantized{Data: c.mb.WeightCopy(l.backwardCopy), Encoding: l.weights.encoding, Rows: l.in, Cols: l.out},
		C: dx, M: rows, N: l.in, K: l.out,
	})
	if !l.readsInput(c) {
		c.release(&d.low)
		return dx
	}
	c.keepColumnwise(&d.low)
	if c.split.input {
		c.saveTensor(batchctx.ByWeight, l.gradSlot, &d.low)
		c.saveTensor(batchctx.ByWeight, l.inputSlot, &x.low)
	} else {
		l.weightProduct(c, &x.low, &d.low, rows)
	}
	return dx
}

// weightProduct contributes xᵀ·dy to the gradient of the weight, and releases both.
func (l *fp8Linear) weightProduct(c *call, x, dy *fp8.Tensor, rows int) {
	a, b := c.columnwise(x), c.columnwise(dy)
	if g, accumulate := c.grad(l.weightUse); g != (kernels.Buffer{}) {
		c.quantizedMatMul(kernels.QuantizedMatMul{A: a, B: b, C: g, M: l.in, N: l.out, K: rows, Accumulate: accumulate})
	}
	c.release(x)
	c.release(dy)
}

// sum returns a buffer for one microbatch's gradient of a bias or a gain, or the zero Buffer if
// the parameter is frozen.
func (c *call) sum(use batchctx.Param, n int) kernels.Buffer {
	switch {
	case c.mb.Frozen(use):
		return kernels.Buffer{}
	case c.split.input:
		return c.alloc(memory.Carry, n)
	}
	return c.workspace(n)
}

// contribute adds a microbatch's sum to the gradient of a parameter and releases it, or leaves it
// for W. The bits are the same either way, because each microbatch is summed separately.
func (c *call) contribute(use batchctx.Param, slot batchctx.Slot, sum kernels.Buffer) {
	switch {
	case sum == kernels.Buffer{}:
	case c.split.input:
		c.saveFor(batchctx.ByWeight, slot, sum)
	default:
		c.addTo(use, sum)
		c.free(sum)
	}
}

// takeSum contributes the sum that I left in a slot.
func (c *call) takeSum(use batchctx.Param, slot batchctx.Slot) {
	if !c.mb.Frozen(use) {
		c.addTo(use, c.mb.Take(slot))
		c.mb.ReleaseSaved(slot)
	}
}

// takeSums computes a norm's W.
func (c *call) takeSums(n *norm) {
	c.takeSum(n.gainUse, n.gainSum)
	c.takeSum(n.biasUse, n.biasSum)
}

// addTo adds a sum to the gradient of a parameter.
func (c *call) addTo(use batchctx.Param, sum kernels.Buffer) {
	switch g, accumulate := c.grad(use); {
	case g == kernels.Buffer{}:
	case accumulate:
		c.mb.Check(c.dev.Add(g, sum))
	default:
		c.mb.Check(c.dev.Copy(g, sum))
	}
}

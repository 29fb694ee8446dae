package transformer

import (
	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// fp8Linear is a linear layer whose three products are of FP8 operands:
//
//	y  = x·weight   of x rowwise and weight columnwise
//	dx = dy·weightᵀ of dy rowwise and weight rowwise
//	dw = xᵀ·dy      of both columnwise, added up in float32
//
// Weight and bias are float32; the bias and its gradient never are anything else.
type fp8Linear struct {
	linear
	name                 string
	input, weights, grad quantity
	forward, backward    batchctx.Copy // of the weight
	forWeight            batchctx.Slot // its first slot of what I leaves for W
}

// The tensors that I leaves for W of a linear layer.
const (
	forInput    = iota // the layer's input, columnwise
	forGrad            // the gradient of its output, columnwise
	forBias            // the gradient of the bias
	linearSlots = iota
)

// The tensors that I leaves for W of a norm.
const (
	forGain = iota
	forNormBias
	normSlots = iota
)

// fp8Linear turns the linear layer called name into one in FP8.
func (b *builder) fp8Linear(l linear, name string, forWeight batchctx.Slot) fp8Linear {
	return fp8Linear{
		linear: l, name: name, forWeight: forWeight,
		input:   b.quantity(name+".input", fp8.Input, l.in),
		weights: b.quantity(name+".weight", fp8.Weight, l.out),
		grad:    b.quantity(name+".grad_output", fp8.GradOutput, l.out),
	}
}

// quantizeWeight makes the copies of the weight that the step wants: for the forward
// columnwise, for the backward rowwise.
func (l *fp8Linear) quantizeWeight(dev kernels.Compute, q batchctx.Quantization[kernels.Buffer]) {
	shape := l.weights.shape(l.in)
	half := func(k batchctx.Copy, usage fp8.Usage) (none kernels.Quantized) {
		if !q.Wants(k) {
			return none
		}
		b := q.Must(dev.Alloc(memory.FP8, kernels.Uint8, shape.Bytes(usage)))
		q.Put(k, b)
		return shape.Half(usage, b)
	}
	op := l.weights.fill(l.weight, l.in, q.Pass() == batchctx.Train)
	op.Columnwise = half(l.forward, fp8.Columnwise)
	op.Rowwise = half(l.backward, fp8.Rowwise)
	q.Check(dev.Quantize(op))
}

// trains reports whether the gradient of the weight is wanted.
func (c *call) trains(l *fp8Linear) bool { return !c.mb.Frozen(l.weightUse) }

// fp8Linear sets y to x·weight + bias. x stays the caller's.
func (c *call) fp8Linear(y kernels.Buffer, x *fp8.Tensor, l *fp8Linear, rows int) {
	a := c.rowwise(x)
	weight := c.mb.WeightCopy(l.forward)
	c.quantizedMatMul(kernels.QuantizedMatMul{
		A: a, B: kernels.Quantized{Data: weight, Encoding: l.weights.encoding, Rows: l.out, Cols: l.in},
		C: y, Bias: l.bias, M: rows, N: l.out, K: l.in,
	})
}

// quantizeInput returns the input of a layer as the gradient of its weight needs it, and
// nothing where that is frozen.
func (c *call) quantizeInput(x kernels.Buffer, l *fp8Linear, rows int) fp8.Tensor {
	if !c.trains(l) {
		return fp8.Tensor{}
	}
	return c.quantize(x, &l.input, rows, fp8.Columnwise)
}

// quantizeGrad returns the gradient of a layer's output as the layer's backward needs
// it, and contributes to the gradient of the bias.
func (c *call) quantizeGrad(dy kernels.Buffer, l *fp8Linear, rows int) fp8.Tensor {
	if !c.mb.Frozen(l.biasUse) {
		sum := c.vector(l.out)
		c.mb.Check(c.dev.SumRows(sum, dy, rows, l.out, false))
		c.contribute(l.biasUse, l.forWeight+forBias, sum)
	}
	usage := fp8.Rowwise
	if c.trains(l) {
		usage |= fp8.Columnwise
	}
	return c.quantize(dy, &l.grad, rows, usage)
}

// fp8LinearBackward sets dx to dy·weightᵀ, and contributes xᵀ·dy to the gradient of the
// weight, or leaves both for W. It releases dy and x, which is none where the weight is
// frozen.
func (c *call) fp8LinearBackward(dx kernels.Buffer, dy, x *fp8.Tensor, l *fp8Linear, rows int) {
	a := c.rowwise(dy)
	weight := c.mb.WeightCopy(l.backward)
	c.quantizedMatMul(kernels.QuantizedMatMul{
		A: a, B: kernels.Quantized{Data: weight, Encoding: l.weights.encoding, Rows: l.in, Cols: l.out},
		C: dx, M: rows, N: l.in, K: l.out,
	})
	switch {
	case !c.trains(l):
		c.release(dy)
	case c.split.input:
		c.keepTensor(dy, fp8.Columnwise)
		c.saveTensorFor(batchctx.ByWeight, l.forWeight+forGrad, dy)
		c.saveTensorFor(batchctx.ByWeight, l.forWeight+forInput, x)
	default:
		c.keepTensor(dy, fp8.Columnwise)
		c.weightProduct(x, dy, l, rows)
	}
}

// weightProduct contributes xᵀ·dy to the gradient of the weight, and releases both.
func (c *call) weightProduct(x, dy *fp8.Tensor, l *fp8Linear, rows int) {
	a, b := c.columnwise(x), c.columnwise(dy)
	if g, accumulate := c.grad(l.weightUse); g != (kernels.Buffer{}) {
		c.quantizedMatMul(kernels.QuantizedMatMul{A: a, B: b, C: g, M: l.in, N: l.out, K: rows, Accumulate: accumulate})
	}
	c.release(x)
	c.release(dy)
}

// fp8Weights is W of a linear layer.
func (c *call) fp8Weights(l *fp8Linear) {
	if c.trains(l) {
		dy := c.takeTensor(l.forWeight+forGrad, &l.grad, 0, fp8.Columnwise)
		x := c.takeTensor(l.forWeight+forInput, &l.input, dy.Rows, fp8.Columnwise)
		c.weightProduct(&x, &dy, l, dy.Rows)
	}
	c.takeSum(l.biasUse, l.forWeight+forBias)
}

// vector returns a buffer for the gradient of a bias or a gain, of one microbatch.
func (c *call) vector(n int) kernels.Buffer {
	if c.split.input {
		return c.alloc(memory.Carry, n)
	}
	return c.workspace(n)
}

// contribute adds the sum of a microbatch to the gradient of a parameter, or leaves it
// for W, and releases it. The bits are the same: each microbatch is summed alone.
func (c *call) contribute(use batchctx.Param, slot batchctx.Slot, sum kernels.Buffer) {
	if c.split.input {
		c.saveFor(batchctx.ByWeight, slot, sum)
		return
	}
	c.addTo(use, sum)
	c.free(sum)
}

// takeSum contributes what I has left in a slot.
func (c *call) takeSum(use batchctx.Param, slot batchctx.Slot) {
	if !c.mb.Frozen(use) {
		c.addTo(use, c.mb.Take(slot))
		c.mb.End(slot)
	}
}

// takeSums is W of a norm.
func (c *call) takeSums(n *norm, slot batchctx.Slot) {
	c.takeSum(n.gainUse, slot+forGain)
	c.takeSum(n.biasUse, slot+forNormBias)
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

// fp8NormBackward contributes to the gradients of gain and bias, or leaves them for W,
// and sets dx, which may be none.
func (c *call) fp8NormBackward(dx, dy, x kernels.Buffer, s statistics, n *norm, slot batchctx.Slot, rows int) {
	op := kernels.LayerNormBackward{DY: dy, X: x, Gamma: n.gain, Mean: s.mean, RStd: s.rstd, DX: dx, Rows: rows, Cols: x.N / rows}
	if !c.mb.Frozen(n.gainUse) {
		op.DGamma = c.vector(op.Cols)
	}
	if !c.mb.Frozen(n.biasUse) {
		op.DBeta = c.vector(op.Cols)
	}
	if (op.DX != kernels.Buffer{} || op.DGamma != kernels.Buffer{} || op.DBeta != kernels.Buffer{}) {
		c.mb.Check(c.dev.LayerNormBackward(op))
	}
	if (op.DGamma != kernels.Buffer{}) {
		c.contribute(n.gainUse, slot+forGain, op.DGamma)
	}
	if (op.DBeta != kernels.Buffer{}) {
		c.contribute(n.biasUse, slot+forNormBias, op.DBeta)
	}
}

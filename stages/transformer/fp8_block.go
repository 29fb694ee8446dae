package transformer

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// fp8Block is a block whose linear layers compute in FP8. Its backward quantizes all
// that the gradients of its weights are made of: in B they are made at once, in I what
// they are made of goes on to W, a byte an element.
type fp8Block struct {
	stage
	heads                  int
	norm1, norm2           norm
	qkv, output, up, down  fp8Linear
	attentionDrop, mlpDrop dropout

	wide         quantity // the input of GELU, as it is kept
	heads8       quantity // queries, keys and values, where attention is in FP8
	fp8Attention bool
	lines        lines
}

// Slots of the tensors that an fp8Block saves; the sizes per token are in the package's documentation.
const (
	keptInput     batchctx.Slot = iota + 1
	keptQKV                     // queries, keys and values
	keptAttention               // the output of attention
	keptLSE                     // the logarithm of each attention row's sum of exponentials
	keptMiddle                  // the input and what attention adds to it
	keptUp                      // the input of GELU

	// From I for W, of each linear layer and each norm.
	keptForDown
	keptForUp     = keptForDown + linearSlots
	keptForOutput = keptForUp + linearSlots
	keptForQKV    = keptForOutput + linearSlots
	keptForNorm2  = keptForQKV + linearSlots
	keptForNorm1  = keptForNorm2 + normSlots
)

// inFP8 returns a block that has the parameters of another one, and computes in FP8.
func (b *builder) inFP8(full *block) *fp8Block {
	name := full.Name
	s := &fp8Block{
		stage: full.stage, heads: full.heads, norm1: full.norm1, norm2: full.norm2,
		attentionDrop: full.attentionDrop, mlpDrop: full.mlpDrop, fp8Attention: b.cfg.FP8Attention,
	}
	s.lines = b.lines()
	s.qkv = b.fp8Linear(full.qkv, name+".attention.qkv", keptForQKV)
	s.output = b.fp8Linear(full.output, name+".attention.output", keptForOutput)
	s.up = b.fp8Linear(full.up, name+".mlp.up", keptForUp)
	s.down = b.fp8Linear(full.down, name+".mlp.down", keptForDown)
	s.wide = b.quantity(name+".mlp.up.output", fp8.Output, s.up.out)
	if s.fp8Attention {
		s.heads8 = b.quantity(name+".attention.qkv.output", fp8.Output, s.qkv.out)
	}
	s.lines.end()
	b.measuring = append(b.measuring, &s.lines)
	for _, l := range s.linears() {
		l.forward = s.WeightCopy(l.name, batchctx.AtForward)
		l.backward = s.WeightCopy(l.name, batchctx.AtBackward)
	}
	s.declareSlots()
	return s
}

// declareSlots declares what the block saves, in the order of the numbers above.
func (b *fp8Block) declareSlots() {
	for _, name := range []string{"input", "qkv", "attention", "log-sum-exp", "middle", "up"} {
		b.Slot(name)
	}
	for _, layer := range []string{"down", "up", "output", "qkv"} {
		for _, name := range [linearSlots]string{forInput: "input", forGrad: "gradient", forBias: "bias gradient"} {
			b.Slot("for " + layer + ": " + name)
		}
	}
	for _, layer := range []string{"norm2", "norm1"} {
		for _, name := range [normSlots]string{forGain: "gain gradient", forNormBias: "bias gradient"} {
			b.Slot("for " + layer + ": " + name)
		}
	}
}

// fp8Linears is the number of linear layers of a block.
const fp8Linears = 4

// linears iterates in the order of their numbers.
func (b *fp8Block) linears() [fp8Linears]*fp8Linear {
	return [...]*fp8Linear{&b.qkv, &b.output, &b.up, &b.down}
}

// fp8Stage is the stage of an fp8Block.
type fp8Stage struct {
	*trained
	block *fp8Block
}

// QuantizeWeights makes the copies of the weights for a step.
func (s *fp8Stage) QuantizeWeights(_ context.Context, q batchctx.Quantization[kernels.Buffer]) error {
	if q.Pass() == batchctx.Train {
		if err := s.block.lines.begin(); err != nil {
			return err
		}
	}
	for _, l := range s.block.linears() {
		l.quantizeWeight(s.dev, q)
	}
	return nil
}

func (b *fp8Block) forward(c *call, in, out []kernels.Buffer) {
	x := in[0]
	rows := x.N / b.width
	attended := b.attend(c, x, rows)
	middle := c.saved(x.N)
	c.fp8Linear(middle, &attended, &b.output, rows)
	b.keepAttention(c, &attended)
	c.dropoutInPlace(middle, &b.attentionDrop)
	c.add(middle, x)
	c.saveInput(keptInput, x)

	n := c.normed(middle, &b.norm2, &b.up.input, rows)
	wide := c.workspace(4 * x.N) // the input of GELU, then its output
	c.fp8Linear(wide, &n, &b.up, rows)
	c.release(&n)
	if c.mb.Pass() != batchctx.Eval {
		up := c.quantize(wide, &b.wide, rows, fp8.Rowwise)
		c.saveTensor(keptUp, &up)
	}
	c.gelu(wide, wide)
	g := c.quantize(wide, &b.down.input, rows, fp8.Rowwise)
	c.free(wide)
	y := c.alloc(memory.Activation, x.N)
	c.fp8Linear(y, &g, &b.down, rows)
	c.release(&g)
	c.dropoutInPlace(y, &b.mlpDrop)
	c.add(y, middle)
	c.save(keptMiddle, middle)
	c.hand(&out[0], y)
}

// attend returns the output of attention, and keeps what its backward needs.
func (b *fp8Block) attend(c *call, x kernels.Buffer, rows int) fp8.Tensor {
	n := c.normed(x, &b.norm1, &b.qkv.input, rows)
	class := memory.Saved
	if b.fp8Attention {
		class = memory.Workspace
	}
	qkv := c.alloc(class, 3*x.N)
	c.fp8Linear(qkv, &n, &b.qkv, rows)
	c.release(&n)
	if b.fp8Attention { // attention sees what is kept
		kept := c.quantize(qkv, &b.heads8, rows, fp8.Rowwise)
		c.dequantize(qkv, &kept)
		c.saveTensor(keptQKV, &kept)
	}
	attended, lse := c.alloc(class, x.N), c.saved(rows*b.heads)
	c.attention(attended, lse, qkv, rows, b.heads)
	c.save(keptLSE, lse)
	if b.fp8Attention {
		c.free(qkv)
		out := c.quantize(attended, &b.output.input, rows, fp8.Rowwise|fp8.Columnwise)
		c.free(attended)
		return out
	}
	c.save(keptQKV, qkv)
	out := c.quantize(attended, &b.output.input, rows, fp8.Rowwise)
	c.save(keptAttention, attended)
	return out
}

// keepAttention releases the output of attention, but for the half that the backward needs.
func (b *fp8Block) keepAttention(c *call, attended *fp8.Tensor) {
	if !b.fp8Attention {
		c.release(attended)
		return
	}
	c.keepTensor(attended, fp8.Columnwise)
	c.saveTensor(keptAttention, attended)
}

// weights is four products of what I has left, and eight sums.
func (b *fp8Block) weights(c *call) {
	for _, l := range b.linears() {
		c.fp8Weights(l)
	}
	c.takeSums(&b.norm2, keptForNorm2)
	c.takeSums(&b.norm1, keptForNorm1)
}

// forWeight returns nothing: what W takes are parameters' own slots.
func (b *fp8Block) forWeight(batchctx.Microbatch[kernels.Buffer]) slots { return 0 }

func (b *fp8Block) backward(c *call, gradOut, gradIn []kernels.Buffer) {
	dmiddle := b.mlpBackward(c, gradOut[0])
	b.attentionBackward(c, dmiddle, gradIn)
}

// mlpBackward returns the gradient of the block's middle, which the call owns.
func (b *fp8Block) mlpBackward(c *call, dy kernels.Buffer) kernels.Buffer {
	rows := dy.N / b.width
	ddown := c.dropoutBackward(dy, &b.mlpDrop)
	d := c.quantizeGrad(ddown, &b.down, rows)
	c.freeDropped(ddown, dy)

	up := c.workspace(4 * dy.N)
	kept := c.takeTensor(keptUp, &b.wide, rows, fp8.Rowwise)
	c.dequantize(up, &kept)
	c.release(&kept)
	wide := c.workspace(up.N) // gelu(up), then its gradient, then that of up
	var g fp8.Tensor
	if c.trains(&b.down) {
		c.gelu(wide, up)
		g = c.quantize(wide, &b.down.input, rows, fp8.Columnwise)
	}
	c.fp8LinearBackward(wide, &d, &g, &b.down, rows)
	c.geluBackward(wide, up)
	c.free(up)
	d = c.quantizeGrad(wide, &b.up, rows)
	c.free(wide)

	middle := c.mb.Take(keptMiddle)
	n := c.workspace(dy.N) // norm2(middle), then its gradient
	s := c.norm(n, middle, &b.norm2, rows)
	n8 := c.quantizeInput(n, &b.up, rows)
	c.fp8LinearBackward(n, &d, &n8, &b.up, rows)
	dmiddle := c.workspace(dy.N)
	c.fp8NormBackward(dmiddle, n, middle, s, &b.norm2, keptForNorm2, rows)
	c.freeStatistics(s)
	c.free(n)
	c.mb.End(keptMiddle)
	c.add(dmiddle, dy)
	return dmiddle
}

// attentionBackward takes over dmiddle.
func (b *fp8Block) attentionBackward(c *call, dmiddle kernels.Buffer, gradIn []kernels.Buffer) {
	rows := dmiddle.N / b.width
	doutput := c.dropoutBackward(dmiddle, &b.attentionDrop)
	d := c.quantizeGrad(doutput, &b.output, rows)
	c.freeDropped(doutput, dmiddle)
	dqkv := b.attendBackward(c, &d, dmiddle.N, rows)
	d = c.quantizeGrad(dqkv, &b.qkv, rows)
	c.free(dqkv)

	x := c.mb.Take(keptInput)
	n := c.workspace(dmiddle.N) // norm1(x), then its gradient
	s := c.norm(n, x, &b.norm1, rows)
	n8 := c.quantizeInput(n, &b.qkv, rows)
	c.fp8LinearBackward(n, &d, &n8, &b.qkv, rows)
	var dx kernels.Buffer
	if gradIn != nil {
		dx = c.alloc(memory.ActGrad, dmiddle.N)
	}
	c.fp8NormBackward(dx, n, x, s, &b.norm1, keptForNorm1, rows)
	c.freeStatistics(s)
	c.free(n)
	c.mb.End(keptInput)
	if gradIn != nil {
		c.add(dx, dmiddle)
		c.hand(&gradIn[0], dx)
	}
	c.free(dmiddle)
}

// attendBackward returns the gradient of queries, keys and values, which the call owns,
// from that of the output projection, which it releases.
func (b *fp8Block) attendBackward(c *call, d *fp8.Tensor, n, rows int) kernels.Buffer {
	var out fp8.Tensor
	attended, qkv := kernels.Buffer{}, kernels.Buffer{}
	if b.fp8Attention {
		out = c.takeTensor(keptAttention, &b.output.input, rows, fp8.Columnwise)
		attended = c.workspace(n)
		c.dequantize(attended, &out)
		if !c.trains(&b.output) {
			c.release(&out)
		}
	} else {
		attended = c.mb.Take(keptAttention)
		out = c.quantizeInput(attended, &b.output, rows)
	}
	dattended := c.workspace(n)
	c.fp8LinearBackward(dattended, d, &out, &b.output, rows)
	if b.fp8Attention {
		kept := c.takeTensor(keptQKV, &b.heads8, rows, fp8.Rowwise)
		qkv = c.workspace(3 * n)
		c.dequantize(qkv, &kept)
		c.release(&kept)
	} else {
		qkv = c.mb.Take(keptQKV)
	}
	dqkv := c.workspace(3 * n)
	c.attentionBackward(dqkv, dattended, qkv, attended, c.mb.Take(keptLSE), rows, b.heads)
	c.free(dattended)
	if b.fp8Attention {
		c.free(attended)
		c.free(qkv)
	} else {
		c.mb.End(keptAttention)
		c.mb.End(keptQKV)
	}
	c.mb.End(keptLSE)
	return dqkv
}

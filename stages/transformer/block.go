package transformer

import (
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

// block is a pre-norm transformer block.
type block struct {
	stage
	heads                  int
	norm1, norm2           norm
	qkv, output, up, down  layer
	attentionDrop, mlpDrop dropout
	low                    lowPrecision
}

// Slots of the tensors that a block saves; the package documentation lists their sizes per token.
const (
	slotInput     batchctx.Slot = iota + 1
	slotQKV                     // queries, keys and values
	slotAttention               // the output of attention
	slotLSE                     // the logarithm of each attention row's sum of exponentials
	slotMiddle                  // the middle of the block: its input plus the result of attention
	slotUp                      // the input of GELU

	// Slots of the float32 gradients that I leaves for W. Each is the gradient of:
	slotGradOut    // the output
	slotGradUp     // the input of GELU
	slotGradNorm2  // the output of norm2
	slotGradMiddle // the middle
	slotGradQKV    // queries, keys and values
	slotGradNorm1  // the output of norm1
)

var blockSlots = [...]string{
	slotInput: "input", slotQKV: "qkv", slotAttention: "attention", slotLSE: "log-sum-exp", slotMiddle: "middle", slotUp: "up",
	slotGradOut: "gradient of output", slotGradUp: "gradient of up", slotGradNorm2: "gradient of norm2",
	slotGradMiddle: "gradient of middle", slotGradQKV: "gradient of qkv", slotGradNorm1: "gradient of norm1",
}

func (b *builder) block(number int) stages.Stage[kernels.Buffer] {
	name := fmt.Sprintf("block%d", number)
	width := b.cfg.Width
	if dev, ok := b.dev.(kernels.HeadLimit); ok && b.err == nil && width/b.cfg.Heads > dev.MaxHeadDim() {
		b.err = fmt.Errorf("transformer: heads of %d elements (Width %d, Heads %d), %s has kernels for at most %d: give more heads",
			width/b.cfg.Heads, width, b.cfg.Heads, b.dev.Name(), dev.MaxHeadDim())
	}
	s := &block{
		heads:         b.cfg.Heads,
		attentionDrop: b.cfg.dropout(name + ".attention.dropout"),
		mlpDrop:       b.cfg.dropout(name + ".mlp.dropout"),
	}
	s.norm1 = b.norm(&s.stage, name+".norm1")
	qkv := b.linear(&s.stage, name+".attention.qkv", standardDeviation, width, 3*width)
	output := b.linear(&s.stage, name+".attention.output", b.residual, width, width)
	s.norm2 = b.norm(&s.stage, name+".norm2")
	up := b.linear(&s.stage, name+".mlp.up", standardDeviation, width, 4*width)
	down := b.linear(&s.stage, name+".mlp.down", b.residual, 4*width, width)
	s.qkv, s.output, s.up, s.down = qkv, output, up, down
	s.dev, s.width, s.packed = b.dev, width, b.packed
	s.Name = name
	s.Inputs(hidden)
	s.Outputs(hidden)
	for _, slot := range blockSlots[slotInput:slotGradOut] {
		s.Slot(slot)
	}
	if b.cfg.FP8 != nil && b.err == nil {
		return b.inFP8(s, qkv, output, up, down)
	}
	for _, slot := range blockSlots[slotGradOut:] {
		s.Slot(slot)
	}
	return asStage(s)
}

func (b *block) forward(c *call, in, out []kernels.Buffer) {
	x := in[0]
	rows := x.N / b.width

	class := b.low.class(b.low.qkv)
	qkv := c.normed(b.qkv, class, x, &b.norm1, rows)
	if b.low.qkv != nil { // attention uses the quantized values
		kept := c.quantize(qkv, b.low.qkv, rows, fp8.Rowwise)
		c.dequantize(qkv, &kept)
		c.saveTensor(batchctx.ByBackward, slotQKV, &kept)
	}
	attended, lse := c.alloc(class, x.N), c.saved(rows*b.heads)
	c.attention(attended, lse, qkv, rows, b.heads)
	if b.low.qkv == nil {
		c.save(slotQKV, qkv)
	} else {
		c.free(qkv)
	}
	c.save(slotLSE, lse)
	middle := b.output.forward(c, memory.Saved, attended, slotAttention, rows)
	c.dropoutInPlace(middle, &b.attentionDrop)
	c.add(middle, x)
	c.saveInput(slotInput, x)

	up := c.normed(b.up, b.low.class(b.low.up), middle, &b.norm2, rows)
	wide := up // the input of GELU, then its output
	if b.low.up == nil {
		wide = c.workspace(up.N)
	} else if c.mb.Pass() != batchctx.Eval {
		kept := c.quantize(up, b.low.up, rows, fp8.Rowwise)
		c.saveTensor(batchctx.ByBackward, slotUp, &kept)
	}
	c.gelu(wide, up)
	if b.low.up == nil {
		c.save(slotUp, up)
	}
	y := b.down.forward(c, memory.Activation, wide, 0, rows)
	c.dropoutInPlace(y, &b.mlpDrop)
	c.add(y, middle)
	c.save(slotMiddle, middle)
	c.hand(&out[0], y)
}

// forWeight returns the slots that W takes in float32: for every layer that trains, the gradient
// of its output, and either its input or the input of its norm, from which W recomputes the
// layer's input. In FP8 every layer has its own slots.
func (b *block) forWeight(mb batchctx.Microbatch[kernels.Buffer]) slots {
	var s slots
	if b.low.linears != nil {
		return s
	}
	s = s.with(b.down.trains(mb), slotUp, slotGradOut)
	s = s.with(b.up.trains(mb), slotMiddle, slotGradUp)
	s = s.with(trains(mb, b.norm2.gainUse, b.norm2.biasUse), slotMiddle, slotGradNorm2)
	s = s.with(b.output.trains(mb), slotAttention, slotGradMiddle)
	s = s.with(b.qkv.trains(mb), slotInput, slotGradQKV)
	return s.with(trains(mb, b.norm1.gainUse, b.norm1.biasUse), slotInput, slotGradNorm1)
}

func (b *block) backward(c *call, gradOut, gradIn []kernels.Buffer) {
	dmiddle := b.mlpBackward(c, gradOut[0])
	b.attentionBackward(c, dmiddle, gradIn)
}

// mlpBackward returns the gradient of the block's middle, owned by the call.
func (b *block) mlpBackward(c *call, dy kernels.Buffer) kernels.Buffer {
	rows := dy.N / b.width
	ddown := c.dropoutBackward(dy, &b.mlpDrop)
	d := b.down.gradient(c, gradient{dy: ddown, lent: ddown == dy}, rows)
	up := c.takeKept(slotUp, b.low.up, 4*dy.N, rows)
	wide := c.carry(slotGradUp, 4*dy.N) // gelu(up), then its gradient, then the gradient of up
	if b.down.readsInput(c) {
		c.gelu(wide, up)
	}
	b.down.backward(c, wide, operand{x: wide}, d, rows)
	c.keep(slotGradOut, dy)
	c.mb.Check(c.dev.GELUBackward(wide, wide, up))
	c.endKept(slotUp, b.low.up, up)
	d = b.up.gradient(c, gradient{dy: wide, slot: slotGradUp}, rows)

	middle := c.mb.Take(slotMiddle)
	n := c.carry(slotGradNorm2, dy.N) // norm2(middle), then its gradient
	s := c.norm(n, middle, &b.norm2, rows)
	b.up.backward(c, n, operand{x: n}, d, rows)
	dmiddle := c.carry(slotGradMiddle, dy.N)
	c.normBackward(dmiddle, n, middle, s, &b.norm2, rows)
	c.freeStatistics(s)
	c.leave(slotGradNorm2, n)
	c.pass(slotMiddle, middle)
	c.add(dmiddle, dy)
	return dmiddle
}

// attentionBackward computes the backward of the block's first half. It takes ownership of
// dmiddle.
func (b *block) attentionBackward(c *call, dmiddle kernels.Buffer, gradIn []kernels.Buffer) {
	rows := dmiddle.N / b.width
	doutput := c.dropoutBackward(dmiddle, &b.attentionDrop)
	d := b.output.gradient(c, gradient{dy: doutput, lent: doutput == dmiddle}, rows)
	attended := b.output.input(c, slotAttention, rows)
	dattended := b.output.backward(c, kernels.Buffer{}, attended, d, rows)

	qkv, lse := c.takeKept(slotQKV, b.low.qkv, 3*dmiddle.N, rows), c.mb.Take(slotLSE)
	dqkv := c.carry(slotGradQKV, 3*dmiddle.N)
	c.attentionBackward(dqkv, dattended, qkv, attended.x, lse, rows, b.heads)
	c.free(dattended)
	c.endKept(slotAttention, b.low.qkv, attended.x)
	c.mb.ReleaseSaved(slotLSE)
	c.endKept(slotQKV, b.low.qkv, qkv)
	d = b.qkv.gradient(c, gradient{dy: dqkv, slot: slotGradQKV}, rows)

	x := c.mb.Take(slotInput)
	n := c.carry(slotGradNorm1, dmiddle.N) // norm1(x), then its gradient
	s := c.norm(n, x, &b.norm1, rows)
	b.qkv.backward(c, n, operand{x: n}, d, rows)
	var dx kernels.Buffer
	if gradIn != nil {
		dx = c.alloc(memory.ActGrad, dmiddle.N)
	}
	c.normBackward(dx, n, x, s, &b.norm1, rows)
	c.freeStatistics(s)
	c.leave(slotGradNorm1, n)
	c.pass(slotInput, x)
	if gradIn != nil {
		c.add(dx, dmiddle)
		c.hand(&gradIn[0], dx)
	}
	c.leave(slotGradMiddle, dmiddle)
}

// weights computes W. In float32 it processes the layers in the same order as B; in FP8 it
// computes four products of the operands that I left, and adds eight sums.
func (b *block) weights(c *call) {
	if b.low.linears != nil {
		for _, l := range b.low.linears {
			if l.readsInput(c) {
				dy := c.takeTensor(l.gradSlot, &l.grads, 0, fp8.Columnwise)
				x := c.takeTensor(l.inputSlot, &l.inputs, dy.Rows, fp8.Columnwise)
				l.weightProduct(c, &x, &dy, dy.Rows)
			}
			c.takeSum(l.biasUse, l.biasSum)
		}
		c.takeSums(&b.norm2)
		c.takeSums(&b.norm1)
		return
	}
	if c.split.forWeight.has(slotUp) {
		up, dy := c.mb.Take(slotUp), c.mb.Take(slotGradOut)
		c.gelu(up, up) // in place, because up is not needed afterwards
		c.droppedWeights(up, dy, b.down, &b.mlpDrop, dy.N/b.width)
		c.mb.ReleaseSaved(slotUp)
		c.mb.ReleaseSaved(slotGradOut)
	}
	c.normedWeights(slotMiddle, slotGradNorm2, slotGradUp, &b.norm2, b.up, b.width)
	if c.split.forWeight.has(slotAttention) {
		attended, dmiddle := c.mb.Take(slotAttention), c.mb.Take(slotGradMiddle)
		c.droppedWeights(attended, dmiddle, b.output, &b.attentionDrop, dmiddle.N/b.width)
		c.mb.ReleaseSaved(slotAttention)
		c.mb.ReleaseSaved(slotGradMiddle)
	}
	c.normedWeights(slotInput, slotGradNorm1, slotGradQKV, &b.norm1, b.qkv, b.width)
}

// attention computes out and lse from qkv. lse holds heads×tokens elements of each sequence, one
// sequence after another.
func (c *call) attention(out, lse, qkv kernels.Buffer, rows, heads int) {
	width := out.N / max(rows, 1)
	need, _ := c.dev.AttentionWorkspace(rows, heads, width/heads)
	scratch := c.scratch(need)
	for _, s := range c.spans(rows) {
		c.mb.Check(c.dev.CausalAttention(kernels.CausalAttention{
			QKV: c.rows(qkv, s, 3*width), Out: c.rows(out, s, width), LSE: c.rows(lse, s, heads), Workspace: scratch,
			Tokens: s.tokens, Heads: heads, HeadDim: width / heads,
		}))
	}
	c.free(scratch)
}

// attentionBackward sets dqkv.
func (c *call) attentionBackward(dqkv, dout, qkv, out, lse kernels.Buffer, rows, heads int) {
	width := dout.N / max(rows, 1)
	_, need := c.dev.AttentionWorkspace(rows, heads, width/heads)
	scratch := c.scratch(need)
	for _, s := range c.spans(rows) {
		c.mb.Check(c.dev.CausalAttentionBackward(kernels.CausalAttentionBackward{
			DOut: c.rows(dout, s, width), QKV: c.rows(qkv, s, 3*width), Out: c.rows(out, s, width), LSE: c.rows(lse, s, heads),
			DQKV: c.rows(dqkv, s, 3*width), Workspace: scratch, Tokens: s.tokens, Heads: heads, HeadDim: width / heads,
		}))
	}
	c.free(scratch)
}

package transformer

import (
	"fmt"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// block is a pre-norm transformer block.
type block struct {
	stage
	heads                  int
	norm1, norm2           norm
	qkv, output, up, down  linear
	attentionDrop, mlpDrop dropout
}

// Slots of the tensors that a block saves; the sizes per token are in the package's documentation.
const (
	slotInput     batchctx.Slot = iota + 1
	slotQKV                     // queries, keys and values
	slotAttention               // the output of attention
	slotLSE                     // the logarithm of each attention row's sum of exponentials
	slotMiddle                  // the input and what attention adds to it
	slotUp                      // the input of GELU

	// From I for W, the gradients of:
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

func (b *builder) block(number int) *block {
	name := fmt.Sprintf("block%d", number)
	width := b.cfg.Width
	if dev, ok := b.dev.(kernels.HeadLimit); ok && b.err == nil && width/b.cfg.Heads > dev.MostHeadDim() {
		b.err = fmt.Errorf("transformer: heads of %d elements (Width %d, Heads %d), %s has kernels for at most %d: give more heads",
			width/b.cfg.Heads, width, b.cfg.Heads, b.dev.Name(), dev.MostHeadDim())
	}
	s := &block{
		heads:         b.cfg.Heads,
		attentionDrop: b.cfg.dropout(name + ".attention.dropout"),
		mlpDrop:       b.cfg.dropout(name + ".mlp.dropout"),
	}
	s.norm1 = b.norm(&s.stage, name+".norm1")
	s.qkv = b.linear(&s.stage, name+".attention.qkv", standardDeviation, width, 3*width)
	s.output = b.linear(&s.stage, name+".attention.output", b.residual, width, width)
	s.norm2 = b.norm(&s.stage, name+".norm2")
	s.up = b.linear(&s.stage, name+".mlp.up", standardDeviation, width, 4*width)
	s.down = b.linear(&s.stage, name+".mlp.down", b.residual, 4*width, width)
	s.dev, s.width = b.dev, width
	s.Name = name
	s.Inputs(hidden)
	s.Outputs(hidden)
	return s
}

// declareSlots declares what the block saves.
func (b *block) declareSlots() *block {
	for _, name := range blockSlots[1:] {
		b.Slot(name)
	}
	return b
}

func (b *block) forward(c *call, in, out []kernels.Buffer) {
	x := in[0]
	rows := x.N / b.width

	qkv := c.saved(3 * x.N)
	n := c.workspace(x.N)
	c.freeStatistics(c.norm(n, x, &b.norm1, rows))
	c.linear(qkv, n, &b.qkv, rows)
	c.free(n)
	attended, lse := c.saved(x.N), c.saved(rows*b.heads)
	c.attention(attended, lse, qkv, rows, b.heads)
	c.save(slotQKV, qkv)
	c.save(slotLSE, lse)
	middle := c.saved(x.N)
	c.linear(middle, attended, &b.output, rows)
	c.save(slotAttention, attended)
	c.dropoutInPlace(middle, &b.attentionDrop)
	c.add(middle, x)
	c.saveInput(slotInput, x)

	up := c.saved(4 * x.N)
	n = c.workspace(x.N)
	c.freeStatistics(c.norm(n, middle, &b.norm2, rows))
	c.linear(up, n, &b.up, rows)
	c.free(n)
	wide := c.workspace(up.N)
	c.gelu(wide, up)
	c.save(slotUp, up)
	y := c.alloc(memory.Activation, x.N)
	c.linear(y, wide, &b.down, rows)
	c.free(wide)
	c.dropoutInPlace(y, &b.mlpDrop)
	c.add(y, middle)
	c.save(slotMiddle, middle)
	c.hand(&out[0], y)
}

// forWeight returns what W takes: of every layer that trains the input, of which a
// norm's output is computed again, and the gradient of the output.
func (b *block) forWeight(mb batchctx.Microbatch[kernels.Buffer]) slots {
	var s slots
	s = s.with(trains(mb, b.down.weightUse, b.down.biasUse), slotUp, slotGradOut)
	s = s.with(trains(mb, b.up.weightUse, b.up.biasUse), slotMiddle, slotGradUp)
	s = s.with(trains(mb, b.norm2.gainUse, b.norm2.biasUse), slotMiddle, slotGradNorm2)
	s = s.with(trains(mb, b.output.weightUse, b.output.biasUse), slotAttention, slotGradMiddle)
	s = s.with(trains(mb, b.qkv.weightUse, b.qkv.biasUse), slotInput, slotGradQKV)
	return s.with(trains(mb, b.norm1.gainUse, b.norm1.biasUse), slotInput, slotGradNorm1)
}

func (b *block) backward(c *call, gradOut, gradIn []kernels.Buffer) {
	dmiddle := b.mlpBackward(c, gradOut[0])
	b.attentionBackward(c, dmiddle, gradIn)
}

// mlpBackward returns the gradient of the block's middle, which the call owns.
func (b *block) mlpBackward(c *call, dy kernels.Buffer) kernels.Buffer {
	rows := dy.N / b.width
	up := c.mb.Take(slotUp)
	ddown := c.dropoutBackward(dy, &b.mlpDrop)
	wide := c.carry(slotGradUp, 4*dy.N) // gelu(up), then its gradient, then that of up
	if !c.split.input && !c.mb.Frozen(b.down.weightUse) {
		c.gelu(wide, up)
	}
	c.linearWeights(wide, ddown, &b.down, rows)
	c.linearInput(wide, ddown, &b.down, rows)
	c.freeDropped(ddown, dy)
	c.keep(slotGradOut, dy)
	c.geluBackward(wide, up)
	c.pass(slotUp, up)

	middle := c.mb.Take(slotMiddle)
	n := c.carry(slotGradNorm2, dy.N) // norm2(middle), then its gradient
	s := c.norm(n, middle, &b.norm2, rows)
	c.linearWeights(n, wide, &b.up, rows)
	c.linearInput(n, wide, &b.up, rows)
	c.leave(slotGradUp, wide)
	dmiddle := c.carry(slotGradMiddle, dy.N)
	c.normBackward(dmiddle, n, middle, s, &b.norm2, rows)
	c.freeStatistics(s)
	c.leave(slotGradNorm2, n)
	c.pass(slotMiddle, middle)
	c.add(dmiddle, dy)
	return dmiddle
}

// attentionBackward takes over dmiddle.
func (b *block) attentionBackward(c *call, dmiddle kernels.Buffer, gradIn []kernels.Buffer) {
	rows := dmiddle.N / b.width
	attended := c.mb.Take(slotAttention)
	doutput := c.dropoutBackward(dmiddle, &b.attentionDrop)
	c.linearWeights(attended, doutput, &b.output, rows)
	dattended := c.workspace(dmiddle.N)
	c.linearInput(dattended, doutput, &b.output, rows)
	c.freeDropped(doutput, dmiddle)

	qkv, lse := c.mb.Take(slotQKV), c.mb.Take(slotLSE)
	dqkv := c.carry(slotGradQKV, 3*dmiddle.N)
	c.attentionBackward(dqkv, dattended, qkv, attended, lse, rows, b.heads)
	c.free(dattended)
	c.pass(slotAttention, attended)
	c.mb.End(slotLSE)
	c.mb.End(slotQKV)

	x := c.mb.Take(slotInput)
	n := c.carry(slotGradNorm1, dmiddle.N) // norm1(x), then its gradient
	s := c.norm(n, x, &b.norm1, rows)
	c.linearWeights(n, dqkv, &b.qkv, rows)
	c.linearInput(n, dqkv, &b.qkv, rows)
	c.leave(slotGradQKV, dqkv)
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

// weights is W: the layers in the order in which B comes to them.
func (b *block) weights(c *call) {
	if c.split.forWeight.has(slotUp) {
		up, dy := c.mb.Take(slotUp), c.mb.Take(slotGradOut)
		c.gelu(up, up) // in place: nobody takes it again
		c.droppedWeights(up, dy, &b.down, &b.mlpDrop)
		c.mb.End(slotUp)
		c.mb.End(slotGradOut)
	}
	c.normedWeights(slotMiddle, slotGradNorm2, slotGradUp, &b.norm2, &b.up)
	if c.split.forWeight.has(slotAttention) {
		c.droppedWeights(c.mb.Take(slotAttention), c.mb.Take(slotGradMiddle), &b.output, &b.attentionDrop)
		c.mb.End(slotAttention)
		c.mb.End(slotGradMiddle)
	}
	c.normedWeights(slotInput, slotGradNorm1, slotGradQKV, &b.norm1, &b.qkv)
}

// attention sets out and lse from qkv.
func (c *call) attention(out, lse, qkv kernels.Buffer, rows, heads int) {
	dim := out.N / max(rows*heads, 1)
	need, _ := c.dev.AttentionWorkspace(rows, heads, dim)
	scratch := c.scratch(need)
	c.mb.Check(c.dev.CausalAttention(kernels.CausalAttention{
		QKV: qkv, Out: out, LSE: lse, Workspace: scratch, Tokens: rows, Heads: heads, HeadDim: dim,
	}))
	c.free(scratch)
}

// attentionBackward sets dqkv.
func (c *call) attentionBackward(dqkv, dout, qkv, out, lse kernels.Buffer, rows, heads int) {
	dim := dout.N / max(rows*heads, 1)
	_, need := c.dev.AttentionWorkspace(rows, heads, dim)
	scratch := c.scratch(need)
	c.mb.Check(c.dev.CausalAttentionBackward(kernels.CausalAttentionBackward{
		DOut: dout, QKV: qkv, Out: out, LSE: lse, DQKV: dqkv, Workspace: scratch,
		Tokens: rows, Heads: heads, HeadDim: dim,
	}))
	c.free(scratch)
}

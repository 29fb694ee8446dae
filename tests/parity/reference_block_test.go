package parity

import "github.com/weir-ml/weir/kernels"

// block holds the tensors of one block's forward for one microbatch that its backward needs.
type block struct {
	name               string
	norm1, norm2       normed
	qkv, attended, lse kernels.Buffer
	up, wide           kernels.Buffer
	y                  kernels.Buffer
}

func (b *block) forward(t *pass, name string, x kernels.Buffer) {
	width, heads := t.cfg.Width, t.cfg.Heads
	b.name = name
	b.norm1 = t.norm(x, name+".norm1")
	b.qkv = t.linear(b.norm1.y, name+".attention.qkv", width, 3*width)
	b.attended, b.lse = t.floats(t.tokens*width), t.floats(heads*t.tokens)
	need, _ := t.dev.AttentionWorkspace(t.tokens, heads, width/heads)
	scratch := t.floats(need)
	t.check(t.dev.CausalAttention(kernels.CausalAttention{
		QKV: b.qkv, Out: b.attended, LSE: b.lse, Workspace: scratch,
		Tokens: t.tokens, Heads: heads, HeadDim: width / heads,
	}))
	r := t.linear(b.attended, name+".attention.output", width, width)
	r = t.sum(t.dropout(r, name+".attention.dropout"), x)

	b.norm2 = t.norm(r, name+".norm2")
	b.up = t.linear(b.norm2.y, name+".mlp.up", width, 4*width)
	b.wide = t.floats(t.tokens * 4 * width)
	t.check(t.dev.GELU(b.wide, b.up))
	y := t.linear(b.wide, name+".mlp.down", 4*width, width)
	b.y = t.sum(t.dropout(y, name+".mlp.dropout"), r)
}

// backward returns the gradient of the block's input.
func (b *block) backward(t *pass, dy kernels.Buffer) kernels.Buffer {
	width, heads := t.cfg.Width, t.cfg.Heads
	d := t.linearBackward(t.dropout(dy, b.name+".mlp.dropout"), b.wide, b.name+".mlp.down", 4*width, width)
	dup := t.floats(t.tokens * 4 * width)
	t.check(t.dev.GELUBackward(dup, d, b.up))
	d = t.linearBackward(dup, b.norm2.y, b.name+".mlp.up", width, 4*width)
	dr := t.sum(t.normBackward(d, b.norm2, b.name+".norm2"), dy)

	d = t.linearBackward(t.dropout(dr, b.name+".attention.dropout"), b.attended, b.name+".attention.output", width, width)
	dqkv := t.floats(t.tokens * 3 * width)
	_, need := t.dev.AttentionWorkspace(t.tokens, heads, width/heads)
	scratch := t.floats(need)
	t.check(t.dev.CausalAttentionBackward(kernels.CausalAttentionBackward{
		DOut: d, QKV: b.qkv, Out: b.attended, LSE: b.lse, DQKV: dqkv, Workspace: scratch,
		Tokens: t.tokens, Heads: heads, HeadDim: width / heads,
	}))
	d = t.linearBackward(dqkv, b.norm1.y, b.name+".attention.qkv", width, 3*width)
	return t.sum(t.normBackward(d, b.norm1, b.name+".norm1"), dr)
}

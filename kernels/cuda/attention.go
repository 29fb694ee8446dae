package cuda

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
)

// Sizes for which the attention kernels are built.
const (
	attentionTile = 16  // queries, and keys, per tile
	maxHeadDim    = 128 // elements per head
)

// MaxHeadDim returns the maximum number of elements per head.
func (d *Device) MaxHeadDim() int { return maxHeadDim }

// AttentionWorkspace returns one element for each head and token for the backward pass. The
// forward pass needs no workspace, but must be given one element.
func (d *Device) AttentionWorkspace(tokens, heads, headDim int) (forward, backward int) {
	return 1, max(1, times(tokens, heads))
}

// times multiplies dimensions. On overflow it returns the largest int.
func times(a, b int) int {
	if a <= 0 || b <= 0 {
		return 0
	}
	if a > math.MaxInt/b {
		return math.MaxInt
	}
	return a * b
}

// heads rejects heads that are too wide, and more tokens than an int32 can count.
func (o *operation) heads(tokens, headDim int) {
	if o.fits(tokens); headDim > maxHeadDim && o.err == nil {
		o.err = fmt.Errorf("%w: attention with %d elements per head: use more heads, of at most %d elements each", ErrMissing, headDim, maxHeadDim)
	}
}

// tiles queues a kernel with one block for each tile and head.
func (o *operation) tiles(kernel string, tokens, heads int, args ...uint64) {
	o.launch(kernel, (tokens+attentionTile-1)/attentionTile, heads, 4*attentionTile, args...)
}

// CausalAttention iterates over tiles of keys for each tile of queries, with a running maximum
// and sum. Its error wraps ErrMissing for heads of more than 128 elements.
func (d *Device) CausalAttention(op kernels.CausalAttention) error {
	o := d.begin("CausalAttention", d.checks.CausalAttention(op))
	o.heads(op.Tokens, op.HeadDim)
	scale := float32(1 / math.Sqrt(float64(op.HeadDim)))
	o.tiles("attention", op.Tokens, op.Heads, o.at(op.Out), o.at(op.LSE), o.at(op.QKV), uint64(op.Tokens), uint64(op.HeadDim), word(scale))
	return o.end()
}

// CausalAttentionBackward recomputes the attention weights of each tile twice: for the gradient of
// its queries and for the gradients of its keys and values, so that no two blocks add to the same
// sum.
func (d *Device) CausalAttentionBackward(op kernels.CausalAttentionBackward) error {
	o := d.begin("CausalAttentionBackward", d.checks.CausalAttentionBackward(op))
	o.heads(op.Tokens, op.HeadDim)
	scale, rows := float32(1/math.Sqrt(float64(op.HeadDim))), op.LSE.N
	delta, dout, qkv, dqkv, lse := o.at(op.Workspace), o.at(op.DOut), o.at(op.QKV), o.at(op.DQKV), o.at(op.LSE)
	o.each("attention_delta", rows, delta, o.at(op.Out), dout, uint64(rows), uint64(op.Tokens), uint64(op.HeadDim))
	for _, kernel := range []string{"attention_queries", "attention_keys"} {
		o.tiles(kernel, op.Tokens, op.Heads, dqkv, dout, qkv, lse, delta, uint64(op.Tokens), uint64(op.HeadDim), word(scale))
	}
	return o.end()
}

package kernels_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

// attend runs the forward pass and returns its buffers.
func (b *bench) attend(qkv []float32, tokens, heads, dim int) kernels.CausalAttention {
	forward, _ := b.AttentionWorkspace(tokens, heads, dim)
	op := kernels.CausalAttention{
		QKV: b.put(qkv), Out: b.random(tokens * heads * dim), LSE: b.random(heads * tokens),
		Workspace: b.random(forward), Tokens: tokens, Heads: heads, HeadDim: dim,
	}
	require.NoError(b, b.CausalAttention(op))
	return op
}

// The result of a token does not depend on the number of tokens that follow: a prefix alone
// gives the same bits, at every length.
func TestAttentionOfAPrefix(t *testing.T) {
	b := newBench(t)
	const tokens, heads, dim = 140, 2, 5
	const width = heads * dim
	qkv := b.draw(tokens * 3 * width)
	all := b.attend(qkv, tokens, heads, dim)
	out, lse := b.read(all.Out), b.read(all.LSE)
	for n := 1; n <= tokens; n++ {
		part := b.attend(qkv[:n*3*width], n, heads, dim)
		sameBits(t, out[:n*width], b.read(part.Out), "Out", n)
		for head := range heads {
			sameBits(t, lse[head*tokens:][:n], b.read(part.LSE)[head*n:][:n], "LSE", n)
		}
		b.Reclaim(0)
	}
}

// A NaN in a later token has no effect.
func TestAttentionIgnoresNaNToCome(t *testing.T) {
	b := newBench(t)
	const tokens, heads, dim = 100, 2, 5
	const width = heads * dim
	qkv := b.draw(tokens * 3 * width)
	want := b.attend(qkv, tokens, heads, dim)
	for _, last := range []int{0, 30, 63, 64, 98} {
		spoiled := append([]float32{}, qkv...)
		for i := (last + 1) * 3 * width; i < len(spoiled); i++ {
			spoiled[i] = float32(math.NaN())
		}
		got := b.attend(spoiled, tokens, heads, dim)
		sameBits(t, b.read(want.Out)[:(last+1)*width], b.read(got.Out)[:(last+1)*width], "Out", last)
	}
}

// The workspace holds a tile and does not grow with the square of the tokens.
func TestAttentionWorkspaceIsATile(t *testing.T) {
	b := newBench(t)
	f1, b1 := b.AttentionWorkspace(100, 4, 32)
	f2, b2 := b.AttentionWorkspace(100_000, 4, 32)
	require.Equal(t, f1, f2)
	require.Equal(t, 99_900, b2-b1)
}

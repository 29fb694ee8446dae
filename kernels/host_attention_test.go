package kernels_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

// guard is the value behind a workspace: a NaN that no operation produces. An operation that
// reads it has it in its result, and one that writes there overwrites it.
const guard = 0x7fc0_dead

// guarded returns a workspace of the given length with guards behind it. Its own elements are
// NaN too, so that no operation can rely on their contents.
func (b *bench) guarded(elements int) kernels.Buffer {
	const behind = 256
	x := make([]float32, elements+behind)
	for i := range x {
		x[i] = math.Float32frombits(guard)
	}
	return b.put(x)
}

// requireGuards requires that the guards behind the elements of a workspace are intact.
func (b *bench) requireGuards(workspace kernels.Buffer, elements int, title string) {
	b.Helper()
	for i, x := range b.read(workspace)[elements:] {
		require.EqualValues(b, guard, math.Float32bits(x), "%s writes %d elements behind its workspace", title, i+1)
	}
}

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

// sequence is attention and its gradients over the first tokens of an input.
type sequence struct{ out, lse, dqkv []float32 }

// attendGuarded runs both passes with workspaces of exactly the required sizes.
func (b *bench) attendGuarded(qkv, dout []float32, tokens, heads, dim int) sequence {
	b.Helper()
	b.Reclaim(0)
	width := heads * dim
	forward, backward := b.AttentionWorkspace(tokens, heads, dim)
	op := kernels.CausalAttention{
		QKV: b.put(qkv[:tokens*3*width]), Out: b.random(tokens * width), LSE: b.random(heads * tokens),
		Workspace: b.guarded(forward), Tokens: tokens, Heads: heads, HeadDim: dim,
	}
	require.NoError(b, b.CausalAttention(op))
	grad := kernels.CausalAttentionBackward{
		DOut: b.put(dout[:tokens*width]), QKV: op.QKV, Out: op.Out, LSE: op.LSE, DQKV: b.random(tokens * 3 * width),
		Workspace: b.guarded(backward), Tokens: tokens, Heads: heads, HeadDim: dim,
	}
	require.NoError(b, b.CausalAttentionBackward(grad))
	b.requireGuards(op.Workspace, forward, "the forward")
	b.requireGuards(grad.Workspace, backward, "the backward")
	return sequence{b.read(op.Out), b.read(op.LSE), b.read(grad.DQKV)}
}

// The outputs of the first tokens of a long sequence are bit-equal to those of a short sequence,
// whose workspace is smaller. They do not depend on the later tokens, even if those are NaN. The
// gradients are bit-equal if the output gradients of the later tokens are zero.
func TestAttentionOfFewTokens(t *testing.T) {
	const tokens, heads = 140, 3
	for _, set := range []kernels.Instructions{kernels.Portable, kernels.AVX2, kernels.AVX512, kernels.NEON} {
		if !set.Available() {
			continue
		}
		for _, threads := range []int{1, 2} {
			for _, dim := range []int{5, 32} {
				t.Run(fmt.Sprintf("%v, %d threads, heads of %d", set, threads, dim), func(t *testing.T) {
					b := newBenchWith(t, kernels.HostConfig{Instructions: set, Threads: threads})
					width := heads * dim
					qkv, dout := b.draw(tokens*3*width), b.draw(tokens*width)
					for _, n := range []int{1, 15, 16, 17, 31, 32, 33, 63, 64, 65} {
						last := append(dout[:n*width:n*width], make([]float32, (tokens-n)*width)...)
						all := b.attendGuarded(qkv, last, tokens, heads, dim)
						few := b.attendGuarded(qkv, last, n, heads, dim)
						sameBits(t, all.out[:n*width], few.out, "Out", n)
						for head := range heads {
							sameBits(t, all.lse[head*tokens:][:n], few.lse[head*n:][:n], "LSE", n)
						}
						sameBits(t, all.dqkv[:n*3*width], few.dqkv, "DQKV", n)

						spoiled := append(qkv[:n*3*width:n*3*width], slices.Repeat([]float32{float32(math.NaN())}, (tokens-n)*3*width)...)
						sameBits(t, few.out, b.read(b.attend(spoiled, tokens, heads, dim).Out)[:n*width], "Out before NaN", n)
					}
				})
			}
		}
	}
}

// The tiles in the workspace grow with the number of tokens in steps of 16, up to 64 tokens. Apart
// from that, the backward pass needs one more element per token.
func TestAttentionWorkspaceFollowsTokens(t *testing.T) {
	b := newBenchWith(t, kernels.HostConfig{Threads: 1})
	const heads, dim = 4, 32
	for n := 1; n < 200; n++ {
		forward, backward := b.AttentionWorkspace(n, heads, dim)
		next, nextBackward := b.AttentionWorkspace(n+1, heads, dim)
		if n%16 == 0 && n < 64 {
			require.Greater(t, next, forward, "%d tokens", n+1)
			require.Greater(t, nextBackward, backward+1, "%d tokens", n+1)
		} else {
			require.Equal(t, forward, next, "%d tokens", n+1)
			require.Equal(t, backward+1, nextBackward, "%d tokens", n+1)
		}
	}
	one, _ := b.AttentionWorkspace(1, heads, dim)
	tile, _ := b.AttentionWorkspace(64, heads, dim)
	require.Less(t, 4*one, tile)
}

package kernels_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

// The known answers of Random123 for philox4x32-10.
func TestPhiloxKnownAnswers(t *testing.T) {
	require.Equal(t, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, kernels.Philox(0, 0, 0))
	ones := uint64(math.MaxUint64)
	require.Equal(t, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, kernels.Philox(ones, ones, ones))
	require.Equal(t, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1},
		kernels.Philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88))
}

// Draws are part of the meaning of a checkpoint and must never change. The expected numbers
// come from an implementation of the documentation in another language.
func TestDrawsStay(t *testing.T) {
	key := kernels.Key{Seed: 1, Step: 2, Microbatch: 3, Op: kernels.OpKey("dropout")}
	require.Equal(t, [4]uint32{0xa140e6cc, 0xc47a67c8, 0xc8adf68a, 0xca979056}, key.Draw(0))
	require.Equal(t, [4]uint32{0x87bd4f81, 0xfa5502eb, 0xe6b23702, 0xd73fcc8d}, key.Draw(1<<40))
}

// Values that are not finite stay so, in operations where a mask or a clamp could hide them.
func TestNotFiniteShows(t *testing.T) {
	b := newBench(t)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	isNaN := func(v float32) bool { return v != v }

	x, y := b.put([]float32{nan, inf, 0}), b.random(3)
	require.NoError(t, b.GELU(y, x))
	out := b.read(y)
	require.True(t, isNaN(out[0]))
	require.True(t, isNaN(out[1]) || out[1] == inf)

	qkv := b.draw(3 * 3 * 4)
	qkv[5] = nan // the key of the first token
	forward, _ := b.AttentionWorkspace(3, 1, 4)
	att := kernels.CausalAttention{QKV: b.put(qkv), Out: b.random(12), LSE: b.random(3), Workspace: b.random(forward), Tokens: 3, Heads: 1, HeadDim: 4}
	require.NoError(t, b.CausalAttention(att))
	for _, v := range b.read(att.Out) {
		require.True(t, isNaN(v))
	}

	weights := b.put([]float32{1, 1})
	loss := kernels.HeadLoss{
		X: b.put([]float32{nan, 0, 1, 1}), Table: b.random(6), Labels: b.ids(2, 3), Weights: weights,
		LSE: b.random(2), Workspace: b.random(b.HeadWorkspace(2, 2, 3)), Tokens: 2, Width: 2, Vocabulary: 3,
	}
	sum, weight, err := b.HeadLoss(loss)
	require.NoError(t, err)
	require.True(t, math.IsNaN(sum))
	require.Equal(t, 2.0, weight)
}

// A whole tile of logits of -Inf has probability 0, wherever it is. If every logit is -Inf
// there is no distribution, and the loss is NaN.
func TestHeadOfMinusInfinity(t *testing.T) {
	b := newBench(t)
	const vocabulary = 3000
	minus := float32(math.Inf(-1))
	for _, from := range []int{0, 1024, 2048} {
		table := b.draw(vocabulary)
		label, want := (from+1500)%vocabulary, 0.0
		for i := range table {
			if i >= from && i < from+1024 {
				table[i] = minus
			}
			want += math.Exp(float64(table[i]))
		}
		op := kernels.HeadLoss{
			X: b.put([]float32{1}), Table: b.put(table), Labels: b.putInts([]int32{int32(label)}), Weights: b.put([]float32{1}),
			LSE: b.random(1), Workspace: b.random(b.HeadWorkspace(1, 1, vocabulary)), Tokens: 1, Width: 1, Vocabulary: vocabulary,
		}
		sum, _, err := b.HeadLoss(op)
		require.NoError(t, err)
		require.InDelta(t, math.Log(want)-float64(table[label]), sum, 1e-5, "from %d", from)
		require.InDelta(t, math.Log(want), b.read(op.LSE)[0], 1e-5)

		dtable := b.random(vocabulary)
		require.NoError(t, b.HeadLossBackward(kernels.HeadLossBackward{
			X: op.X, Table: op.Table, Labels: op.Labels, Weights: op.Weights, LSE: op.LSE, Workspace: op.Workspace,
			DTable: dtable, Seed: 1, Tokens: 1, Width: 1, Vocabulary: vocabulary,
		}))
		for i, g := range b.read(dtable) {
			p := math.Exp(float64(table[i])) / want
			if i == label {
				p--
			}
			require.InDelta(t, p, g, 1e-6, "gradient %d", i)
		}
		b.Reclaim(0)
	}

	table := b.draw(vocabulary)
	for i := range table {
		table[i] = minus
	}
	sum, _, err := b.HeadLoss(kernels.HeadLoss{
		X: b.put([]float32{1}), Table: b.put(table), Labels: b.putInts([]int32{7}), Weights: b.put([]float32{1}),
		LSE: b.random(1), Workspace: b.random(b.HeadWorkspace(1, 1, vocabulary)), Tokens: 1, Width: 1, Vocabulary: vocabulary,
	})
	require.NoError(t, err)
	require.True(t, math.IsNaN(sum))
}

// Keys whose scores are -Inf do not contribute to attention, even if they fill a tile.
func TestAttentionToMinusInfinity(t *testing.T) {
	b := newBench(t)
	const tokens = 130
	qkv := make([]float32, 3*tokens)
	for i := range tokens {
		qkv[3*i], qkv[3*i+1], qkv[3*i+2] = 1, float32(math.Inf(-1)), float32(i)
	}
	const seen = 100
	qkv[3*seen+1] = 0
	op := b.attend(qkv, tokens, 1, 1)
	out, lse := b.read(op.Out), b.read(op.LSE)
	for i := range tokens {
		if i < seen {
			require.True(t, math.IsNaN(float64(out[i])), "token %d sees nothing", i)
		} else {
			require.Equal(t, float32(seen), out[i])
			require.Equal(t, float32(0), lse[i])
		}
	}
}

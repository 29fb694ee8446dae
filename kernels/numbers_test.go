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

// Draws are part of what a checkpoint means: they must never change. The numbers
// are from an implementation of the documentation in another language.
func TestDrawsStay(t *testing.T) {
	key := kernels.Key{Seed: 1, Step: 2, Microbatch: 3, Op: kernels.OpKey("dropout")}
	require.Equal(t, [4]uint32{0xa140e6cc, 0xc47a67c8, 0xc8adf68a, 0xca979056}, key.Draw(0))
	require.Equal(t, [4]uint32{0x87bd4f81, 0xfa5502eb, 0xe6b23702, 0xd73fcc8d}, key.Draw(1<<40))
}

// What is not finite stays so, where a mask or a clamp could hide it.
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
	qkv[5] = nan // key of the first token
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

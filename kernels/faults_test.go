package kernels_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// TestDimensionsAreNamed calls operations with all dimensions zero, and expects an error that
// names each dimension.
func TestDimensionsAreNamed(t *testing.T) {
	b := newBench(t)
	headLoss := func() error { _, _, err := b.HeadLoss(kernels.HeadLoss{}); return err }
	for name, op := range map[string]struct {
		run        func() error
		dimensions []string
	}{
		"MatMul":                  {func() error { return b.MatMul(kernels.MatMul{}) }, []string{"M", "N", "K"}},
		"QuantizedMatMul":         {func() error { return b.QuantizedMatMul(kernels.QuantizedMatMul{}) }, []string{"M", "N", "K"}},
		"Embed":                   {func() error { return b.Embed(kernels.Embed{}) }, []string{"Tokens", "Width", "Vocabulary"}},
		"EmbedBackward":           {func() error { return b.EmbedBackward(kernels.EmbedBackward{}) }, []string{"Tokens", "Width", "Vocabulary"}},
		"HeadLoss":                {headLoss, []string{"Tokens", "Width", "Vocabulary"}},
		"CausalAttention":         {func() error { return b.CausalAttention(kernels.CausalAttention{}) }, []string{"Tokens", "Heads", "HeadDim"}},
		"CausalAttentionBackward": {func() error { return b.CausalAttentionBackward(kernels.CausalAttentionBackward{}) }, []string{"Tokens", "Heads", "HeadDim"}},
	} {
		err := op.run()
		require.ErrorIs(t, err, kernels.ErrShape)
		for _, dimension := range op.dimensions {
			require.ErrorContains(t, err, name+": "+dimension+" is 0, want at least 1")
		}
	}
}

// TestAllocRefuses distinguishes impossible buffers from those for which there is no memory.
func TestAllocRefuses(t *testing.T) {
	b := newBench(t)
	const most = math.MaxInt / 4
	for n, want := range map[int]error{-1: kernels.ErrShape, most: memory.ErrOutOfMemory, most + 1: kernels.ErrShape} {
		_, err := b.Alloc(memory.Saved, kernels.Uint8, n)
		require.ErrorIs(t, err, want, "%d elements", n)
	}
	_, err := b.Alloc(memory.Saved, kernels.Uint8+1, 1)
	require.ErrorIs(t, err, kernels.ErrShape)
}

// TestNoViewOutlivesItsCall checks that a device keeps nothing between operations.
func TestNoViewOutlivesItsCall(t *testing.T) {
	b := newBench(t)
	x, y := b.random(1000), b.random(1000)
	require.NoError(t, b.Add(x, y))
	require.True(t, b.Idle())
}

// TestQuantizedOperands requires operands with the sizes that the operation specifies, and that
// share nothing with its workspace.
func TestQuantizedOperands(t *testing.T) {
	b := newBench(t)
	op := kernels.QuantizedMatMul{A: b.quantized(kernels.Encoding{}, 2, 32), B: b.quantized(kernels.Encoding{}, 3, 32), C: b.random(6), M: 2, N: 3, K: 32}
	op.Workspace = b.random(b.QuantizedWorkspace(op.M, op.N, op.K))
	require.NoError(t, b.QuantizedMatMul(op))
	wrong := op
	wrong.A.Rows = 3
	require.ErrorContains(t, b.QuantizedMatMul(wrong), "A is 3×32, want 2×32")
	wrong = op
	wrong.B.Cols = 16
	require.ErrorContains(t, b.QuantizedMatMul(wrong), "B is 3×16, want 3×32")
	wrong = op
	wrong.M, wrong.A.Rows = 0, 0
	err := b.QuantizedMatMul(wrong)
	require.ErrorContains(t, err, "M is 0, want at least 1")
	require.NotContains(t, err.Error(), "A has")
	wrong = op
	wrong.Workspace = op.A.Data
	require.ErrorContains(t, b.QuantizedMatMul(wrong), "Workspace is written and is also another operand")
	require.Equal(t, "format(3)", (kernels.E2M1 + 1).String())
}

// TestLabelOfTheNextTile uses the first label of the second tile of the vocabulary: the
// gradients of a token's logits add up to 0.
func TestLabelOfTheNextTile(t *testing.T) {
	const tokens, width, vocabulary = 2, 3, 1041
	b := newBench(t)
	x, table := b.random(tokens*width), b.random(vocabulary*width)
	op := kernels.HeadLoss{
		X: x, Table: table, Labels: b.putInts([]int32{1040, 1039}), Weights: b.put([]float32{1, 1}), LSE: b.random(tokens),
		Workspace: b.random(b.HeadWorkspace(tokens, width, vocabulary)), Tokens: tokens, Width: width, Vocabulary: vocabulary,
	}
	_, _, err := b.HeadLoss(op)
	require.NoError(t, err)
	dtable := b.random(vocabulary * width)
	require.NoError(t, b.HeadLossBackward(kernels.HeadLossBackward{
		X: x, Table: table, Labels: op.Labels, Weights: op.Weights, LSE: op.LSE, Workspace: op.Workspace, DTable: dtable,
		Seed: 1, Tokens: tokens, Width: width, Vocabulary: vocabulary,
	}))
	var sums [width]float64
	for i, v := range b.read(dtable) {
		sums[i%width] += float64(v)
	}
	for _, sum := range sums {
		require.InDelta(t, 0, sum, 1e-4)
	}
}

// TestSumSquaresOfLongBuffers sums a buffer that is divided into parts.
func TestSumSquaresOfLongBuffers(t *testing.T) {
	b := newBench(t)
	for _, n := range []int{1, 131_071, 131_072, 200_001} {
		x := make([]float32, n)
		for i := range x {
			x[i] = 2
		}
		sum, err := b.SumSquares(b.put(x))
		require.NoError(t, err)
		require.Equal(t, float64(4*n), sum, n)
	}
}

// TestNormalsComeInPairs: draws at equal distances from 0 and from 1 give opposite sines.
func TestNormalsComeInPairs(t *testing.T) {
	for _, u := range []uint32{0, 1, 7, 1 << 20, 0xfffffff} {
		z, opposite := kernels.Normals([4]uint32{99, u, 98, ^u}), kernels.Normals([4]uint32{99, ^u, 98, u})
		require.InDelta(t, z[0], opposite[0], 1e-13)
		require.InDelta(t, z[1], -opposite[1], 1e-13)
		require.InDelta(t, z[2], opposite[2], 1e-13)
		require.InDelta(t, z[3], -opposite[3], 1e-13)
	}
}

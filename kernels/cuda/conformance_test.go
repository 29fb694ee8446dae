package cuda_test

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/internal/fakecuda"
	"github.com/weir-ml/weir/kernels/kerneltest"
	"github.com/weir-ml/weir/memory"
)

// computes opens a device on the interpreter, which runs its work in an order determined by
// seed.
func computes(t *testing.T, seed uint64, products cuda.Products) (*cuda.Device, *fakecuda.Driver) {
	fake := fakecuda.New(seed, 64<<20, page)
	d := opened(t, fake, cuda.Config{Capacity: 32 << 20, Products: products})
	fake.Follow(d.All)
	return d, fake
}

// long are the cases of kerneltest that take the interpreter a second or more each.
var long = []string{
	"workspaces", "quantize", "quantize/huge", "quantize/stochastic", "quantized matmul", "dequantize", "head/weight 0", "head/backward", "embed/backward",
	"matmul/bias", "normal", "sumsquares", "repeatable", "refusals/buffers", "refusals/aliases",
}

// The device passes the conformance suite on the interpreter, which checks every access of
// every kernel and runs warps and blocks in an order determined by the seed. With -long the test
// launches every kernel, and at least nine in ten of the instructions of each kernel run.
func TestConformance(t *testing.T) {
	var fakes []*fakecuda.Driver
	as := func(t *testing.T, products cuda.Products) *cuda.Device {
		d, fake := computes(t, uint64(len(fakes)), products)
		fakes = append(fakes, fake)
		return d
	}
	open := func(t *testing.T) *cuda.Device { return as(t, cuda.Float32) }
	for _, c := range kerneltest.Cases() {
		if slices.Contains(long, c.Name) && !*testkit.Long {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			d := open(t)
			require.NoError(t, c.Check(d))
			require.NoError(t, d.Close())
		})
	}
	t.Run("wide heads", func(t *testing.T) { wideHeads(t, open(t)) })
	t.Run("tiled head", func(t *testing.T) { tiledHead(t, open(t)) })
	t.Run("bfloat16", func(t *testing.T) { tensorProducts(t, as(t, cuda.BFloat16)) })
	t.Run("graph", func(t *testing.T) { inGraph(t, open(t)) })
	t.Run("many rows", func(t *testing.T) { manyRows(t, open(t)) })

	if !*testkit.Long {
		return // the short suite launches some kernels in few ways
	}
	for _, other := range []func(*testing.T){TestIDs, TestLossCellsAreExact, TestLossCellsPropagateCarries} {
		other(t) // modules are shared, so these launches count too
	}
	all, launches := map[string]int{}, map[string]int{} // by kernel
	never := map[string]map[int]bool{}                  // lines of PTX by kernel
	for _, fake := range fakes {
		for _, m := range fake.Modules() {
			for _, k := range m.Kernels {
				_, n, missed, launched := k.Coverage()
				all[k.Name], launches[k.Name] = n, launches[k.Name]+launched
				lines := map[int]bool{}
				for _, line := range missed {
					lines[line] = never[k.Name] == nil || never[k.Name][line]
				}
				maps.DeleteFunc(lines, func(_ int, missed bool) bool { return !missed })
				never[k.Name] = lines
			}
		}
	}
	total, instructions, unseen := 0, 0, 0
	for name, n := range all {
		require.Positive(t, launches[name], "%s was never launched", name)
		require.LessOrEqual(t, 10*len(never[name]), n, "%s: lines %v of its PTX never ran", name, never[name])
		total, instructions, unseen = total+launches[name], instructions+n, unseen+len(never[name])
	}
	t.Logf("%d kernels, %d launches, %d of %d instructions of PTX", len(all), total, instructions-unseen, instructions)
}

// filled allocates a buffer with numbers that are the same on every device.
func filled(t *testing.T, d kernels.Compute, n int, seed uint64) kernels.Buffer {
	rng := rand.New(rand.NewPCG(seed, 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return put(t, d, memory.Saved, x)
}

// put allocates a buffer with the given numbers.
func put(t *testing.T, d kernels.Compute, class memory.Class, x []float32) kernels.Buffer {
	b := allocated(t, d, class, kernels.Float32, len(x))
	require.NoError(t, d.WriteFloat32(b, x))
	return b
}

func content(t *testing.T, d kernels.Compute, b kernels.Buffer) []float32 {
	x := make([]float32, b.N)
	require.NoError(t, d.ReadFloat32(x, b))
	return x
}

func host(t *testing.T) *kernels.Host {
	h, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20, Instructions: kernels.Portable})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

// wideHeads compares heads of the maximum size with the host's.
func wideHeads(t *testing.T, d kernels.Compute) {
	const tokens, heads, dim = 21, 1, 128
	results := func(d kernels.Compute) (all []float32) {
		forward, backward := d.AttentionWorkspace(tokens, heads, dim)
		op := kernels.CausalAttention{
			QKV: filled(t, d, 3*tokens*heads*dim, 1), Out: filled(t, d, tokens*heads*dim, 2), LSE: filled(t, d, tokens*heads, 3),
			Workspace: filled(t, d, forward, 4), Tokens: tokens, Heads: heads, HeadDim: dim,
		}
		require.NoError(t, d.CausalAttention(op))
		back := kernels.CausalAttentionBackward{
			DOut: filled(t, d, tokens*heads*dim, 5), QKV: op.QKV, Out: op.Out, LSE: op.LSE, DQKV: filled(t, d, 3*tokens*heads*dim, 6),
			Workspace: filled(t, d, backward, 7), Tokens: tokens, Heads: heads, HeadDim: dim,
		}
		require.NoError(t, d.CausalAttentionBackward(back))
		return slices.Concat(content(t, d, op.Out), content(t, d, op.LSE), content(t, d, back.DQKV))
	}
	got, want := results(d), results(host(t))
	for i := range want {
		require.InDelta(t, want[i], got[i], 2e-5, "element %d", i)
	}
	op := kernels.CausalAttention{
		QKV: filled(t, d, 3*129, 1), Out: filled(t, d, 129, 2), LSE: filled(t, d, 1, 3), Workspace: filled(t, d, 1, 4),
		Tokens: 1, Heads: 1, HeadDim: 129,
	}
	require.ErrorIs(t, d.CausalAttention(op), cuda.ErrMissing)
	require.NoError(t, d.Close())
}

// tiledHead compares the gradients of a head whose tokens take two tiles with the host's. The second call takes
// the gradients that the first one has left in the kept logits.
func tiledHead(t *testing.T, d kernels.Compute) {
	const tokens, width, vocabulary = 520, 2, 3
	labels, weights := make([]int32, tokens), slices.Repeat([]float32{1}, tokens)
	for i := range labels {
		labels[i] = int32(i % vocabulary)
	}
	results := func(d kernels.Compute) []float32 {
		op := kernels.HeadLoss{
			X: filled(t, d, tokens*width, 1), Table: filled(t, d, vocabulary*width, 2), Weights: put(t, d, memory.Saved, weights),
			LSE: filled(t, d, tokens, 3), Logits: filled(t, d, tokens*vocabulary, 4), Tokens: tokens, Width: width, Vocabulary: vocabulary,
		}
		var err error
		op.Labels = allocated(t, d, memory.Saved, kernels.Int32, tokens)
		require.NoError(t, d.WriteInt32(op.Labels, labels))
		_, _, err = d.HeadLoss(op)
		require.NoError(t, err)
		back := kernels.HeadLossBackward{
			X: op.X, Table: op.Table, Labels: op.Labels, Weights: op.Weights, LSE: op.LSE, Logits: op.Logits, Seed: 1,
			DX: filled(t, d, tokens*width, 5), Tokens: tokens, Width: width, Vocabulary: vocabulary,
		}
		require.NoError(t, d.HeadLossBackward(back))
		dx := back.DX
		back.DX, back.DTable, back.Gradients = kernels.Buffer{}, filled(t, d, vocabulary*width, 6), true
		require.NoError(t, d.HeadLossBackward(back))
		return slices.Concat(content(t, d, dx), content(t, d, back.DTable))
	}
	got, want := results(d), results(host(t))
	for i := range want {
		require.InDelta(t, want[i], got[i], 2e-4, "element %d", i)
	}
	require.NoError(t, d.Close())
}

// inGraph compares the draws of kernels in a graph with the host's, microbatch after
// microbatch.
func inGraph(t *testing.T, d *cuda.Device) {
	h := host(t)
	want := filled(t, h, 40, 1)
	y := put(t, d, memory.Resident, content(t, h, want))
	require.NoError(t, d.SetLayout(&memory.Layout{Height: page, Places: []int32{0, 0}, Levels: make([]memory.Level, 1)}))
	for mb := range int64(4) {
		d.SetPlace(0)
		for op := range uint64(20) {
			key := kernels.Key{Seed: 9, Step: 2, Microbatch: mb, Op: op}
			require.NoError(t, errors.Join(d.Dropout(y, y, 0.01, key), h.Dropout(want, want, 0.01, key)))
		}
	}
	require.NoError(t, d.SetLayout(nil))
	require.Equal(t, content(t, h, want), content(t, d, y))
	require.NoError(t, d.Close())
}

// manyRows compares sums and draws with the host's, bit for bit.
func manyRows(t *testing.T, d kernels.Compute) {
	const n = 1 << 14
	key := kernels.Key{Seed: 1 << 40, Step: 5, Microbatch: 1 << 33, Op: kernels.OpKey("weights")}
	results := func(d kernels.Compute) (all []float32) {
		x, y := filled(t, d, n, 1), filled(t, d, n, 2)
		require.NoError(t, d.Normal(x, 0.02, key))
		require.NoError(t, d.Dropout(y, y, 0.3, key))
		weight, m, v := filled(t, d, n, 3), filled(t, d, n, 4), filled(t, d, n, 5)
		require.NoError(t, d.AddRow(weight, m, 1, n))
		require.NoError(t, d.Copy(v, x))
		require.NoError(t, d.Zero(m))
		require.NoError(t, d.SumRows(m, y, 1, n, true))
		return slices.Concat(content(t, d, x), content(t, d, y), content(t, d, weight), content(t, d, v), content(t, d, m))
	}
	got, want := results(d), results(host(t))
	for i := range want {
		require.Equal(t, math.Float32bits(want[i]), math.Float32bits(got[i]), "element %d: %v and %v", i, want[i], got[i])
	}
	require.NoError(t, d.Close())
}

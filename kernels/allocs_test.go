package kernels_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/kernels"
)

// everyOperation returns all operations except the low-precision ones, on operands of about the
// given sizes.
func everyOperation(b *bench, tokens, width int) map[string]func() error {
	const heads, vocabulary = 2, 50
	all := tokens * width
	x, y, z, v, w := b.random(all), b.random(all), b.random(all), b.random(width), b.random(width)
	weight, grad := b.random(width*width), b.random(width*width)
	mean, rstd := b.random(tokens), b.random(tokens)
	forward, backward := b.AttentionWorkspace(tokens, heads, width/heads)
	qkv, dqkv, lse := b.random(3*all), b.random(3*all), b.random(heads*tokens)
	att := kernels.CausalAttention{QKV: qkv, Out: y, LSE: lse, Workspace: b.random(forward), Tokens: tokens, Heads: heads, HeadDim: width / heads}
	attBack := kernels.CausalAttentionBackward{
		DOut: x, QKV: qkv, Out: y, LSE: lse, DQKV: dqkv, Workspace: b.random(backward), Tokens: tokens, Heads: heads, HeadDim: width / heads,
	}
	ids, table, dtable, dpositions := b.ids(tokens, vocabulary), b.random(vocabulary*width), b.random(vocabulary*width), b.random(all)
	head := kernels.HeadLoss{
		X: x, Table: table, Labels: ids, Weights: mean, LSE: rstd, Workspace: b.random(b.HeadWorkspace(tokens, width, vocabulary)),
		Tokens: tokens, Width: width, Vocabulary: vocabulary,
	}
	headBack := kernels.HeadLossBackward{
		X: x, Table: table, Labels: ids, Weights: mean, LSE: rstd, Workspace: head.Workspace, DX: y, DTable: dtable, Seed: 1,
		Tokens: tokens, Width: width, Vocabulary: vocabulary, Accumulate: true,
	}
	m, n := b.put(make([]float32, width*width)), b.put(make([]float32, width*width))
	key := kernels.Key{Seed: 1}
	host := make([]float32, all)
	return map[string]func() error{
		"WriteFloat32": func() error { return b.WriteFloat32(x, host) },
		"ReadFloat32":  func() error { return b.ReadFloat32(host, x) },
		"Zero":         func() error { return b.Zero(z) },
		"Copy":         func() error { return b.Copy(z, x) },
		"Add":          func() error { return b.Add(z, x) },
		"Sum":          func() error { return b.Sum(z, x, y) },
		"MatMul":       func() error { return b.MatMul(kernels.MatMul{A: x, B: weight, C: z, M: tokens, N: width, K: width}) },
		"MatMul, transposed": func() error {
			return b.MatMul(kernels.MatMul{A: x, B: weight, C: z, M: tokens, N: width, K: width, TransB: true})
		},
		"MatMul, accumulated": func() error {
			return b.MatMul(kernels.MatMul{A: x, B: y, C: grad, M: width, N: width, K: tokens, TransA: true, Accumulate: true})
		},
		"AddRow":  func() error { return b.AddRow(z, v, tokens, width) },
		"SumRows": func() error { return b.SumRows(v, x, tokens, width, true) },
		"LayerNorm": func() error {
			return b.LayerNorm(kernels.LayerNorm{X: x, Gamma: v, Beta: w, Y: z, Mean: mean, RStd: rstd, Rows: tokens, Cols: width})
		},
		"LayerNormBackward": func() error {
			return b.LayerNormBackward(kernels.LayerNormBackward{DY: y, X: x, Gamma: v, Mean: mean, RStd: rstd, DX: z, DBeta: w, Rows: tokens, Cols: width})
		},
		"GELU":                    func() error { return b.GELU(z, x) },
		"GELUBackward":            func() error { return b.GELUBackward(z, y, x) },
		"CausalAttention":         func() error { return b.CausalAttention(att) },
		"CausalAttentionBackward": func() error { return b.CausalAttentionBackward(attBack) },
		"Embed": func() error {
			return b.Embed(kernels.Embed{IDs: ids, Table: table, Positions: x, X: z, Tokens: tokens, Width: width, Vocabulary: vocabulary})
		},
		"EmbedBackward": func() error {
			return b.EmbedBackward(kernels.EmbedBackward{IDs: ids, DX: x, DTable: dtable, DPositions: dpositions, Tokens: tokens, Width: width, Vocabulary: vocabulary})
		},
		"HeadLoss":         func() error { _, _, err := b.HeadLoss(head); return err },
		"HeadLossBackward": func() error { return b.HeadLossBackward(headBack) },
		"Dropout":          func() error { return b.Dropout(z, x, 0.1, key) },
		"Normal":           func() error { return b.Normal(z, 1, key) },
		"SumSquares":       func() error { _, err := b.SumSquares(x); return err },
		"AdamW": func() error {
			return b.AdamW(kernels.AdamW{Weight: weight, Grad: grad, M: m, V: n, Factor: 1, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.99, Step: 1})
		},
	}
}

// No operation allocates on the Go heap, for any sizes (L11).
func TestOperationsAllocateNothing(t *testing.T) {
	for _, size := range [][2]int{{5, 6}, {140, 130}} {
		b := newBench(t)
		for name, op := range everyOperation(b, size[0], size[1]) {
			require.NoError(t, op(), name)
			require.Zero(t, testing.AllocsPerRun(3, func() { _ = op() }), "%s at %v", name, size)
		}
	}
}

// The tests of allocations and of threads cover every operation of a device.
func TestNoOperationIsMissing(t *testing.T) {
	b := newBench(t)
	allocations := slices.Concat(slices.Collect(maps.Keys(everyOperation(b, 5, 6))), slices.Collect(maps.Keys(everyQuantization(b, encodings[0]))))
	threads := slices.Concat(slices.Collect(maps.Keys(b.outcome(7, 12, 3, 11))), slices.Collect(maps.Keys(b.lowPrecision(7, 12))))
	for list, names := range map[string][]string{"everyOperation or everyQuantization": allocations, "outcome or lowPrecision": threads} {
		for i, name := range names {
			names[i], _, _ = strings.Cut(name, ",")
		}
		for _, operation := range testkit.Added[kernels.Compute, kernels.Device]() {
			if !slices.Contains(names, operation) {
				t.Errorf("add %s to %s", operation, list)
			}
		}
	}
}

// Allocating and releasing buffers does not allocate on the Go heap either.
func TestBuffersAllocateNothing(t *testing.T) {
	b := newBench(t)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		x, _ := b.Alloc(0, kernels.Float32, 1000)
		_, _ = b.Hold(x)
		_, _ = b.Yield(x)
		_, _ = b.Release(x)
	}))
}

package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

// run benchmarks op and reports its rate.
func run(b *testing.B, flops float64, op func() error) {
	b.Helper()
	require.NoError(b, op())
	b.ReportAllocs()
	for b.Loop() {
		_ = op()
	}
	b.ReportMetric(flops*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
}

// BenchmarkAttention counts the products within the causal mask: two in the forward pass and
// five in the backward pass, over half of the pairs of tokens.
func BenchmarkAttention(b *testing.B) {
	for _, s := range [][3]int{{128, 4, 16}, {128, 4, 32}, {128, 4, 64}, {1024, 4, 32}} {
		tokens, heads, dim := s[0], s[1], s[2]
		x := newBench(b)
		qkv := x.draw(tokens * 3 * heads * dim)
		op := x.attend(qkv, tokens, heads, dim)
		_, backward := x.AttentionWorkspace(tokens, heads, dim)
		back := kernels.CausalAttentionBackward{
			DOut: x.random(op.Out.N), QKV: op.QKV, Out: op.Out, LSE: op.LSE, DQKV: x.random(op.QKV.N),
			Workspace: x.random(backward), Tokens: tokens, Heads: heads, HeadDim: dim,
		}
		flops := float64(tokens*(tokens+1)) * float64(heads*dim)
		name := fmt.Sprintf("%dx%dx%d", tokens, heads, dim)
		b.Run("forward/"+name, func(b *testing.B) { run(b, 2*flops, func() error { return x.CausalAttention(op) }) })
		b.Run("backward/"+name, func(b *testing.B) { run(b, 5*flops, func() error { return x.CausalAttentionBackward(back) }) })
	}
}

// BenchmarkHead counts the products: one in the forward pass, three in the backward pass.
func BenchmarkHead(b *testing.B) {
	for _, s := range [][3]int{{128, 64, 256}, {128, 256, 256}, {128, 128, 4096}} {
		tokens, width, vocabulary := s[0], s[1], s[2]
		x := newBench(b)
		op := kernels.HeadLoss{
			X: x.random(tokens * width), Table: x.random(vocabulary * width), Labels: x.ids(tokens, vocabulary), Weights: x.random(tokens),
			LSE: x.random(tokens), Workspace: x.random(x.HeadWorkspace(tokens, width, vocabulary)),
			Tokens: tokens, Width: width, Vocabulary: vocabulary,
		}
		back := kernels.HeadLossBackward{
			X: op.X, Table: op.Table, Labels: op.Labels, Weights: op.Weights, LSE: op.LSE, Workspace: op.Workspace,
			DX: x.random(tokens * width), DTable: x.random(vocabulary * width), Seed: 1,
			Tokens: tokens, Width: width, Vocabulary: vocabulary, Accumulate: true,
		}
		flops := 2 * float64(tokens) * float64(width) * float64(vocabulary)
		name := fmt.Sprintf("%dx%dx%d", tokens, width, vocabulary)
		b.Run("forward/"+name, func(b *testing.B) { run(b, flops, func() error { _, _, err := x.HeadLoss(op); return err }) })
		b.Run("backward/"+name, func(b *testing.B) { run(b, 3*flops, func() error { return x.HeadLossBackward(back) }) })
	}
}

// BenchmarkOperations measures the other operations in nanoseconds per element.
func BenchmarkOperations(b *testing.B) {
	const tokens, width = 128, 256
	x := newBench(b)
	for name, op := range everyOperation(x, tokens, width) {
		b.Run(name, func(b *testing.B) {
			require.NoError(b, op())
			for b.Loop() {
				_ = op()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(tokens*width), "ns/element")
		})
	}
}

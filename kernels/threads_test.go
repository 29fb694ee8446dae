package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

// outcome runs every operation once and returns everything it wrote and returned. The keys
// begin with the name of the operation and a comma.
func (b *bench) outcome(tokens, width, heads, vocabulary int) map[string][]float32 {
	all := tokens * width
	results := map[string][]float32{}
	keep := func(operation string, err error, written ...kernels.Buffer) {
		require.NoError(b, err)
		for _, buffer := range written {
			results[fmt.Sprintf("%s, result %d", operation, len(results))] = b.read(buffer)
		}
	}

	x, y := b.random(all), b.random(all)
	keep("Add", b.Add(y, x), y)
	keep("Sum", b.Sum(y, x, y), y)
	keep("GELU", b.GELU(y, x), y)
	keep("GELUBackward", b.GELUBackward(y, y, x), y)
	keep("Dropout", b.Dropout(y, x, 0.3, kernels.Key{Seed: 1}), y)
	keep("Normal", b.Normal(y, 0.5, kernels.Key{Seed: 1}), y)

	z := b.random(all)
	keep("Zero", b.Zero(z), z)
	keep("Copy", b.Copy(z, x), z)
	row := b.random(width)
	keep("AddRow", b.AddRow(z, row, tokens, width), z)
	keep("SumRows", b.SumRows(row, z, tokens, width, true), row)
	keep("SumRows", b.SumRows(row, z, tokens, width, false), row)
	w, bias := b.random(width*width), b.random(width)
	keep("MatMul", b.MatMul(kernels.MatMul{A: x, B: w, Bias: bias, C: z, M: tokens, N: width, K: width, TransB: true, Accumulate: true}), z)

	ids, table, positions := b.ids(tokens, vocabulary), b.random(vocabulary*width), b.random(all+width)
	keep("Embed", b.Embed(kernels.Embed{IDs: ids, Table: table, Positions: positions, X: z, Tokens: tokens, Width: width, Vocabulary: vocabulary}), z)
	embed := kernels.EmbedBackward{
		IDs: ids, DX: z, DTable: table, DPositions: positions, Tokens: tokens, Width: width, Vocabulary: vocabulary, AccumulateTable: true,
	}
	keep("EmbedBackward", b.EmbedBackward(embed), table, positions)
	embed.AccumulateTable, embed.AccumulatePositions = false, true
	keep("EmbedBackward", b.EmbedBackward(embed), table, positions)

	gamma, beta, mean, rstd := b.random(width), b.random(width), b.random(tokens), b.random(tokens)
	keep("LayerNorm", b.LayerNorm(kernels.LayerNorm{X: x, Gamma: gamma, Beta: beta, Y: y, Mean: mean, RStd: rstd, Rows: tokens, Cols: width}), y, mean, rstd)
	dx, dgamma, dbeta := b.random(all), b.random(width), b.random(width)
	keep("LayerNormBackward", b.LayerNormBackward(kernels.LayerNormBackward{
		DY: y, X: x, Gamma: gamma, Mean: mean, RStd: rstd, DX: dx, DGamma: dgamma, DBeta: dbeta,
		Rows: tokens, Cols: width, AccumulateBeta: true,
	}), dx, dgamma, dbeta)

	forward, backward := b.AttentionWorkspace(tokens, heads, width/heads)
	att := kernels.CausalAttention{
		QKV: b.random(3 * all), Out: y, LSE: b.random(heads * tokens), Workspace: b.put(make([]float32, forward)),
		Tokens: tokens, Heads: heads, HeadDim: width / heads,
	}
	keep("CausalAttention", b.CausalAttention(att), y, att.LSE)
	back := kernels.CausalAttentionBackward{
		DOut: x, QKV: att.QKV, Out: y, LSE: att.LSE, DQKV: b.random(3 * all), Workspace: b.put(make([]float32, backward)),
		Tokens: tokens, Heads: heads, HeadDim: width / heads,
	}
	keep("CausalAttentionBackward", b.CausalAttentionBackward(back), back.DQKV)

	head := kernels.HeadLoss{
		X: x, Table: b.random(vocabulary * width), Labels: b.ids(tokens, vocabulary), Weights: b.random(tokens), LSE: b.random(tokens),
		Workspace: b.put(make([]float32, b.HeadWorkspace(tokens, width, vocabulary))), Tokens: tokens, Width: width, Vocabulary: vocabulary,
	}
	sum, weight, err := b.HeadLoss(head)
	keep("HeadLoss", err, head.LSE)
	results["HeadLoss"] = []float32{float32(sum), float32(weight)}
	headBack := kernels.HeadLossBackward{
		X: x, Table: head.Table, Labels: head.Labels, Weights: head.Weights, LSE: head.LSE, Workspace: head.Workspace,
		DX: dx, DTable: b.random(vocabulary * width), Seed: 2, Tokens: tokens, Width: width, Vocabulary: vocabulary, Accumulate: true,
	}
	keep("HeadLossBackward", b.HeadLossBackward(headBack), dx, headBack.DTable)

	const many = 150_001
	weights, grad, m, v := b.random(many), b.random(many), b.random(many), b.put(make([]float32, many))
	keep("AdamW", b.AdamW(kernels.AdamW{Weight: weights, Grad: grad, M: m, V: v, Factor: 1, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Step: 1}), weights, m, v)
	squares, err := b.SumSquares(weights)
	require.NoError(b, err)
	results["SumSquares"] = []float32{float32(squares), float32(squares - float64(float32(squares)))}
	return results
}

// Every operation gives the same bits for any number of threads, at sizes that are divided into
// many uneven parts and at sizes that are not divided.
func TestThreadsChangeNoBit(t *testing.T) {
	for _, s := range [][4]int{{301, 210, 5, 1500}, {7, 12, 3, 11}} {
		outcome := func(threads int) map[string][]float32 {
			return newBenchWith(t, kernels.HostConfig{Threads: threads}).outcome(s[0], s[1], s[2], s[3])
		}
		want := outcome(1)
		for _, threads := range []int{2, 3, 5} {
			for name, x := range outcome(threads) {
				sameBits(t, want[name], x, name, threads, s)
			}
		}
	}
}

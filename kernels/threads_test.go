package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

// outcome runs every operation once with operands of its own, and returns all that
// was written and returned.
func (b *bench) outcome(tokens, width, heads, vocabulary int) map[string][]float32 {
	all := tokens * width
	results := map[string][]float32{}
	keep := func(err error, buffers map[string]kernels.Buffer) {
		require.NoError(b, err)
		for name, buffer := range buffers {
			results[name] = b.read(buffer)
		}
	}
	type named = map[string]kernels.Buffer

	x, y := b.random(all), b.random(all)
	keep(b.Add(y, x), named{"Add": y})
	keep(b.GELU(y, x), named{"GELU": y})
	keep(b.GELUBackward(y, y, x), named{"GELUBackward": y})
	keep(b.Dropout(y, x, 0.3, kernels.Key{Seed: 1}), named{"Dropout": y})

	z := b.random(all)
	keep(b.Zero(z), named{"Zero": z})
	keep(b.Copy(z, x), named{"Copy": z})
	row := b.random(width)
	keep(b.AddRow(z, row, tokens, width), named{"AddRow": z})
	keep(b.SumRows(row, z, tokens, width, true), named{"SumRows, added": row})
	keep(b.SumRows(row, z, tokens, width, false), named{"SumRows": row})
	w, bias := b.random(width*width), b.random(width)
	keep(b.MatMul(kernels.MatMul{A: x, B: w, Bias: bias, C: z, M: tokens, N: width, K: width, TransB: true, Accumulate: true}), named{"MatMul": z})

	ids, table, positions := b.ids(tokens, vocabulary), b.random(vocabulary*width), b.random(all+width)
	keep(b.Embed(kernels.Embed{IDs: ids, Table: table, Positions: positions, X: z, Tokens: tokens, Width: width, Vocabulary: vocabulary}), named{"Embed": z})
	embed := kernels.EmbedBackward{
		IDs: ids, DX: z, DTable: table, DPositions: positions, Tokens: tokens, Width: width, Vocabulary: vocabulary, AccumulateTable: true,
	}
	keep(b.EmbedBackward(embed), named{"embedding DTable, added": table, "embedding DPositions": positions})
	embed.AccumulateTable, embed.AccumulatePositions = false, true
	keep(b.EmbedBackward(embed), named{"embedding DTable": table, "embedding DPositions, added": positions})

	gamma, beta, mean, rstd := b.random(width), b.random(width), b.random(tokens), b.random(tokens)
	keep(b.LayerNorm(kernels.LayerNorm{X: x, Gamma: gamma, Beta: beta, Y: y, Mean: mean, RStd: rstd, Rows: tokens, Cols: width}),
		named{"LayerNorm": y, "Mean": mean, "RStd": rstd})
	dx, dgamma, dbeta := b.random(all), b.random(width), b.random(width)
	keep(b.LayerNormBackward(kernels.LayerNormBackward{
		DY: y, X: x, Gamma: gamma, Mean: mean, RStd: rstd, DX: dx, DGamma: dgamma, DBeta: dbeta,
		Rows: tokens, Cols: width, AccumulateBeta: true,
	}), named{"DX": dx, "DGamma": dgamma, "DBeta": dbeta})

	forward, backward := b.AttentionWorkspace(tokens, heads, width/heads)
	att := kernels.CausalAttention{
		QKV: b.random(3 * all), Out: y, LSE: b.random(heads * tokens), Workspace: b.put(make([]float32, forward)),
		Tokens: tokens, Heads: heads, HeadDim: width / heads,
	}
	keep(b.CausalAttention(att), named{"Out": y, "LSE": att.LSE})
	back := kernels.CausalAttentionBackward{
		DOut: x, QKV: att.QKV, Out: y, LSE: att.LSE, DQKV: b.random(3 * all), Workspace: b.put(make([]float32, backward)),
		Tokens: tokens, Heads: heads, HeadDim: width / heads,
	}
	keep(b.CausalAttentionBackward(back), named{"DQKV": back.DQKV})

	head := kernels.HeadLoss{
		X: x, Table: b.random(vocabulary * width), Labels: b.ids(tokens, vocabulary), Weights: b.random(tokens), LSE: b.random(tokens),
		Workspace: b.put(make([]float32, b.HeadWorkspace(tokens, width, vocabulary))), Tokens: tokens, Width: width, Vocabulary: vocabulary,
	}
	sum, weight, err := b.HeadLoss(head)
	keep(err, named{"head LSE": head.LSE})
	results["HeadLoss"] = []float32{float32(sum), float32(weight)}
	headBack := kernels.HeadLossBackward{
		X: x, Table: head.Table, Labels: head.Labels, Weights: head.Weights, LSE: head.LSE, Workspace: head.Workspace,
		DX: dx, DTable: b.random(vocabulary * width), Seed: 2, Tokens: tokens, Width: width, Vocabulary: vocabulary, Accumulate: true,
	}
	keep(b.HeadLossBackward(headBack), named{"head DX": dx, "head DTable": headBack.DTable})

	const many = 150_001
	weights, grad, m, v := b.random(many), b.random(many), b.random(many), b.put(make([]float32, many))
	keep(b.AdamW(kernels.AdamW{Weight: weights, Grad: grad, M: m, V: v, Factor: 1, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Step: 1}),
		named{"Weight": weights, "M": m, "V": v})
	squares, err := b.SumSquares(weights)
	keep(err, nil)
	results["SumSquares"] = []float32{float32(squares), float32(squares - float64(float32(squares)))}
	return results
}

// Every operation gives the same bits for any number of threads, at sizes that are
// cut into many uneven parts and at sizes that are not cut.
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

// AVX2 and AVX-512 give the same bits, too.
func TestWidthOfRegistersChangesNoBit(t *testing.T) {
	if !kernels.AVX512.Available() {
		t.Skip("one width to compare")
	}
	outcome := func(set kernels.Instructions) map[string][]float32 {
		return newBenchWith(t, kernels.HostConfig{Instructions: set}).outcome(101, 70, 5, 1100)
	}
	narrow := outcome(kernels.AVX2)
	for name, x := range outcome(kernels.AVX512) {
		sameBits(t, narrow[name], x, name)
	}
}

package kerneltest

import (
	"fmt"

	"github.com/weir-ml/weir/kernels"
)

// Dimensions of the packed sequences. Views begin at any element, not only at whole vectors.
const (
	packedHeads, packedDim = 2, 3
	packedWidth            = packedHeads * packedDim
	packedVocabulary       = 7
)

var packedTokens = []int{3, 65, 18}

// packed holds the operands of one sequence, or of several that lie one after another.
type packed struct {
	ids, labels, weights               kernels.Buffer // tokens
	qkv, dqkv                          kernels.Buffer // tokens × 3·packedWidth
	x, dropped, out, dout, dx          kernels.Buffer // tokens × packedWidth
	lse                                kernels.Buffer // packedHeads × tokens, one sequence after another
	headLSE                            kernels.Buffer // tokens
	table, positions, mean, rstd, gain kernels.Buffer // shared, mean and rstd per token
	dtable, dpositions, dhead          kernels.Buffer // sums over all sequences
	dweight, dbias, dgain              kernels.Buffer
	workspace                          kernels.Buffer
}

// packedSequences checks that operations on views of packed sequences, with the workspace of all tokens, give
// the same bits as on separate buffers. It also checks that one sum over the rows of all sequences has the same
// bits as a sum that is accumulated one sequence after another.
func packedSequences(l *lab) {
	total := 0
	for _, n := range packedTokens {
		total += n
	}
	ids, labels, weights := l.ids(total, packedVocabulary), l.ids(total, packedVocabulary), l.normal(total, 1)
	for i, w := range weights {
		weights[i] = max(w, 0)
	}
	qkv, dout := l.normal(3*total*packedWidth, 1), l.normal(total*packedWidth, 1)
	mean, rstd := l.normal(total, 1), l.normal(total, 1)
	table, positions := l.put("Table", l.normal(packedVocabulary*packedWidth, 1)), l.put("Positions", l.normal(65*packedWidth, 1))
	gain := l.put("Gamma", l.normal(packedWidth, 1))
	forward, backward := l.d.AttentionWorkspace(total, packedHeads, packedDim)
	workspace := l.result("Workspace", max(forward, backward, l.d.HeadWorkspace(total, packedWidth, packedVocabulary)))

	// operands returns the operands of the given number of tokens from first on, without the sums.
	operands := func(first, tokens int) packed {
		rows := func(x []float32, elements int) []float32 { return x[first*elements:][:tokens*elements] }
		result := func(name string, elements int) kernels.Buffer { return l.result(name, tokens*elements) }
		return packed{
			ids: l.putInts("IDs", ids[first:][:tokens]), labels: l.putInts("Labels", labels[first:][:tokens]), weights: l.put("Weights", rows(weights, 1)),
			qkv: l.put("QKV", rows(qkv, 3*packedWidth)), dqkv: result("DQKV", 3*packedWidth), dout: l.put("DOut", rows(dout, packedWidth)),
			x: result("X", packedWidth), dropped: result("y", packedWidth), out: result("Out", packedWidth), dx: result("DX", packedWidth),
			lse: result("LSE", packedHeads), headLSE: result("LSE", 1), mean: l.put("Mean", rows(mean, 1)), rstd: l.put("RStd", rows(rstd, 1)),
			table: table, positions: positions, gain: gain, workspace: workspace,
		}
	}
	sums := func(p *packed) {
		p.dtable, p.dpositions, p.dhead = l.result("DTable", table.N), l.result("DPositions", positions.N), l.result("DTable of the head", table.N)
		p.dweight, p.dbias, p.dgain = l.result("C", packedWidth*packedWidth), l.result("sum", packedWidth), l.result("DGamma", packedWidth)
	}
	var alone packed // its sums
	all := operands(0, total)
	sums(&all)
	sums(&alone)
	first := 0
	for number, tokens := range packedTokens {
		title := fmt.Sprintf("sequence %d, %d tokens, ", number, tokens)
		one := operands(first, tokens)
		one.dtable, one.dpositions, one.dhead, one.dweight, one.dbias, one.dgain = alone.dtable, alone.dpositions, alone.dhead, alone.dweight, alone.dbias, alone.dgain
		views := all
		for _, b := range []struct {
			view     *kernels.Buffer
			elements int
		}{
			{&views.ids, 1}, {&views.labels, 1}, {&views.weights, 1}, {&views.headLSE, 1}, {&views.mean, 1}, {&views.rstd, 1}, {&views.lse, packedHeads},
			{&views.qkv, 3 * packedWidth}, {&views.dqkv, 3 * packedWidth}, {&views.x, packedWidth}, {&views.dropped, packedWidth},
			{&views.out, packedWidth}, {&views.dout, packedWidth}, {&views.dx, packedWidth},
		} {
			*b.view = l.slice(*b.view, first*b.elements, tokens*b.elements)
		}
		want := l.sequence(title+"alone", &one, number, tokens, &one)
		have := l.sequence(title+"packed", &views, number, tokens, &all)
		if have != want {
			l.fault("%sHeadLoss: %v packed, %v alone", title, have, want)
		}
		for name, pair := range map[string][2]kernels.Buffer{
			"Embed": {views.x, one.x}, "Dropout": {views.dropped, one.dropped}, "CausalAttention": {views.out, one.out}, "LSE": {views.lse, one.lse},
			"CausalAttentionBackward": {views.dqkv, one.dqkv}, "HeadLossBackward": {views.dx, one.dx},
		} {
			l.exactly(title+name, l.read(pair[0]), l.read(pair[1]))
		}
		l.rows(title+"alone", &one, tokens, number > 0)
		first += tokens
	}
	l.rows("all sequences", &all, total, false)
	for name, pair := range map[string][2]kernels.Buffer{
		"DTable": {all.dtable, alone.dtable}, "DPositions": {all.dpositions, alone.dpositions}, "DTable of the head": {all.dhead, alone.dhead},
		"MatMul": {all.dweight, alone.dweight}, "SumRows": {all.dbias, alone.dbias}, "DGamma": {all.dgain, alone.dgain},
	} {
		l.exactly(name+" of all sequences", l.read(pair[0]), l.read(pair[1]))
	}
}

// sequence runs the operations of a sequence, and returns the sum and the weight of its loss. The buffers of
// owner, of which those of p may be views, are the ones that it may write.
func (l *lab) sequence(title string, p *packed, number, tokens int, owner *packed) (loss [2]float64) {
	key := kernels.Key{Seed: 7, Microbatch: int64(number), Op: 1}
	l.do(title+": Embed", func() error {
		return l.d.Embed(kernels.Embed{IDs: p.ids, Table: p.table, Positions: p.positions, X: p.x, Tokens: tokens, Width: packedWidth, Vocabulary: packedVocabulary})
	}, owner.x)
	l.do(title+": Dropout", func() error { return l.d.Dropout(p.dropped, p.x, 0.3, key) }, owner.dropped)
	l.do(title+": CausalAttention", func() error {
		return l.d.CausalAttention(kernels.CausalAttention{
			QKV: p.qkv, Out: p.out, LSE: p.lse, Workspace: p.workspace, Tokens: tokens, Heads: packedHeads, HeadDim: packedDim,
		})
	}, owner.out, owner.lse, p.workspace)
	l.do(title+": CausalAttentionBackward", func() error {
		return l.d.CausalAttentionBackward(kernels.CausalAttentionBackward{
			DOut: p.dout, QKV: p.qkv, Out: p.out, LSE: p.lse, DQKV: p.dqkv, Workspace: p.workspace, Tokens: tokens, Heads: packedHeads, HeadDim: packedDim,
		})
	}, owner.dqkv, p.workspace)
	l.do(title+": EmbedBackward", func() error {
		return l.d.EmbedBackward(kernels.EmbedBackward{
			IDs: p.ids, DX: p.dout, DTable: p.dtable, DPositions: p.dpositions, Tokens: tokens, Width: packedWidth, Vocabulary: packedVocabulary,
			AccumulateTable: number > 0, AccumulatePositions: number > 0,
		})
	}, p.dtable, p.dpositions)
	head := kernels.HeadLoss{
		X: p.x, Table: p.table, Labels: p.labels, Weights: p.weights, LSE: p.headLSE, Workspace: p.workspace,
		Tokens: tokens, Width: packedWidth, Vocabulary: packedVocabulary,
	}
	l.do(title+": HeadLoss", func() (err error) {
		loss[0], loss[1], err = l.d.HeadLoss(head)
		return err
	}, owner.headLSE, p.workspace)
	l.do(title+": HeadLossBackward", func() error {
		return l.d.HeadLossBackward(kernels.HeadLossBackward{
			X: p.x, Table: p.table, Labels: p.labels, Weights: p.weights, LSE: p.headLSE, Workspace: p.workspace, DX: p.dx, DTable: p.dhead, Seed: 1,
			Tokens: tokens, Width: packedWidth, Vocabulary: packedVocabulary, Accumulate: number > 0,
		})
	}, owner.dx, p.dhead, p.workspace)
	return loss
}

// rows sums over the rows of the operands, as the gradients of weight, bias and gain do.
func (l *lab) rows(title string, p *packed, tokens int, accumulate bool) {
	l.do(title+": MatMul", func() error {
		return l.d.MatMul(kernels.MatMul{A: p.out, B: p.dout, C: p.dweight, M: packedWidth, N: packedWidth, K: tokens, TransA: true, Accumulate: accumulate})
	}, p.dweight)
	l.do(title+": SumRows", func() error { return l.d.SumRows(p.dbias, p.dout, tokens, packedWidth, accumulate) }, p.dbias)
	l.do(title+": LayerNormBackward", func() error {
		return l.d.LayerNormBackward(kernels.LayerNormBackward{
			DY: p.dout, X: p.out, Gamma: p.gain, Mean: p.mean, RStd: p.rstd, DGamma: p.dgain, Rows: tokens, Cols: packedWidth, AccumulateGamma: accumulate,
		})
	}, p.dgain)
}

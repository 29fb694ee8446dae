package transformer

import (
	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// head is the final norm, the projection onto the vocabulary and the loss.
type head struct {
	stage
	vocabulary int
	context    int
	keep       *int64 // Model.KeepLogits
	norm       norm
	tableUse   batchctx.Param

	labels       batchctx.Part
	labelWeights batchctx.Part
	loss         batchctx.Loss
	sums         []float64 // of the loss, by sequence of the current microbatch
	sumWeights   []float64
	input, lse   batchctx.Slot // lse holds the logarithm of each token's sum of exponentials
	gradNorm     batchctx.Slot // the gradient of the norm's output, which I leaves for W
	logits       batchctx.Slot // the logits of the first tiles; I replaces them by their gradients for W
}

// head returns the head. Its table is the embedding's, or a separate one.
func (b *builder) head() *head {
	h := &head{vocabulary: b.cfg.Vocabulary, context: b.cfg.Context, keep: b.keep}
	h.norm = b.norm(&h.stage, "norm")
	table := tableName
	if b.cfg.Untied {
		table = "head.weight"
	}
	h.tableUse = b.matrix(&h.stage, table, standardDeviation, b.cfg.Vocabulary, b.cfg.Width)
	h.dev, h.width, h.packed = b.dev, b.cfg.Width, b.packed
	h.Name = "head"
	h.Inputs(hidden)
	h.labels = h.Part(Parts[1], batchctx.AtForward, batchctx.AtBackward, batchctx.AtWeight)
	h.labelWeights = h.Part(Parts[2], batchctx.AtForward, batchctx.AtBackward, batchctx.AtWeight)
	h.loss = h.Loss(LossName)
	h.input, h.lse, h.gradNorm = h.Slot("input"), h.Slot("log-sum-exp"), h.Slot("gradient of norm")
	h.logits = h.Slot("logits")
	return h
}

// keepsAll reports whether microbatches of any length keep all their logits.
func (h *head) keepsAll() bool { return *h.keep/4/int64(h.vocabulary) >= int64(h.context) }

// kept returns the number of logits that a microbatch of the given number of tokens keeps from
// its forward to its backward: all of them, or as many whole tiles as the longest microbatch
// keeps, so that all microbatches make the same calls.
func (h *head) kept(rows int) int {
	all, tile := rows*h.vocabulary, h.dev.HeadWorkspace(rows, h.width, h.vocabulary)
	if h.keepsAll() {
		return all
	}
	tiles := max(*h.keep, 0) / 4 / int64(max(h.dev.HeadWorkspace(h.context, h.width, h.vocabulary), 1))
	return int(min(int64(all), tiles*int64(tile)))
}

func (h *head) forward(c *call, in, _ []kernels.Buffer) {
	x := in[0]
	rows := x.N / h.width
	labels, weights := c.mb.Part(h.labels), c.mb.Part(h.labelWeights)
	lse := c.saved(rows)
	n := c.workspace(x.N)
	c.freeStatistics(c.norm(n, x, &h.norm, rows))
	var logits kernels.Buffer
	if kept := h.kept(rows); kept > 0 && c.mb.Pass() != batchctx.Eval {
		logits = c.saved(kept)
	}
	scratch := h.scratch(c, rows, logits)
	h.record(c, rows, kernels.HeadLoss{
		X: n, Table: c.mb.Weight(h.tableUse), Labels: labels, Weights: weights, LSE: lse, Workspace: scratch, Logits: logits,
		Width: h.width, Vocabulary: h.vocabulary,
	})
	c.free(scratch)
	c.free(n)
	c.save(h.lse, lse)
	if logits.N > 0 {
		c.save(h.logits, logits)
	}
	c.saveInput(h.input, x)
}

// record computes the loss of each sequence and records it, in a cell on the device if there is
// one, or else as two numbers. In a recompute it records nothing and, if the device has such cells,
// does not wait for the loss.
func (h *head) record(c *call, rows int, all kernels.HeadLoss) {
	cells, index := c.mb.LossCell(h.loss)
	dev, queued := h.dev.(kernels.LossCells)
	queued = queued && (cells != (kernels.Buffer{}) || c.mb.Pass() == batchctx.Recompute)
	h.sums, h.sumWeights = h.sums[:0], h.sumWeights[:0]
	for _, s := range c.spans(rows) {
		op := all
		op.X, op.Labels, op.Weights, op.LSE = c.rows(all.X, s, h.width), c.rows(all.Labels, s, 1), c.rows(all.Weights, s, 1), c.rows(all.LSE, s, 1)
		op.Logits, op.Tokens = h.logitsOf(c, all.Logits, s), s.tokens
		if queued {
			c.mb.Check(dev.AddHeadLoss(op, kernels.Cell{Buffer: cells, Index: index}, c.mb.Index()))
			continue
		}
		sum, weight, err := h.dev.HeadLoss(op)
		c.mb.Check(err)
		h.sums, h.sumWeights = append(h.sums, sum), append(h.sumWeights, weight)
	}
	if !queued {
		c.mb.LossSums(h.loss, h.sums, h.sumWeights)
	}
}

// logitsOf returns the part of the buffer of kept logits that a sequence uses. If not all logits are kept,
// the buffer has room for those of the first tokens only, so later sequences use less than they need, or
// nothing.
func (h *head) logitsOf(c *call, logits kernels.Buffer, s span) kernels.Buffer {
	first := s.first * h.vocabulary
	if first >= logits.N {
		return kernels.Buffer{}
	}
	return c.slice(logits, first, min(s.tokens*h.vocabulary, logits.N-first))
}

// forWeight returns the slots that W takes.
func (h *head) forWeight(mb batchctx.Microbatch[kernels.Buffer]) slots {
	s := slots(0).with(trains(mb, h.tableUse), h.input, h.lse, h.logits)
	return s.with(trains(mb, h.norm.gainUse, h.norm.biasUse), h.input, h.gradNorm)
}

// backward starts from the loss, so it has no gradient of an output.
func (h *head) backward(c *call, _, gradIn []kernels.Buffer) {
	x, lse := c.mb.Take(h.input), c.mb.Take(h.lse)
	rows := x.N / h.width
	n := c.workspace(x.N)
	s := c.norm(n, x, &h.norm, rows)
	dn := c.carry(h.gradNorm, x.N)
	h.lossBackward(c, dn, n, lse, false)
	c.free(n)
	c.pass(h.lse, lse)
	var dx kernels.Buffer
	if gradIn != nil {
		dx = c.alloc(memory.ActGrad, x.N)
	}
	c.normBackward(dx, dn, x, s, &h.norm, rows)
	c.freeStatistics(s)
	c.leave(h.gradNorm, dn)
	c.pass(h.input, x)
	if gradIn != nil {
		c.hand(&gradIn[0], dx)
	}
}

// weights computes W. It recomputes the logits of each tile, except those that are kept.
func (h *head) weights(c *call) {
	if !c.split.forWeight.has(h.input) {
		return
	}
	x := c.mb.Take(h.input)
	rows := x.N / h.width
	n := c.workspace(x.N)
	s := c.norm(n, x, &h.norm, rows)
	if c.split.forWeight.has(h.lse) {
		h.lossBackward(c, kernels.Buffer{}, n, c.mb.Take(h.lse), true)
	}
	c.free(n)
	if c.split.forWeight.has(h.gradNorm) {
		c.normBackward(kernels.Buffer{}, c.mb.Take(h.gradNorm), x, s, &h.norm, rows)
	}
	c.freeStatistics(s)
}

// lossBackward sets dn, which may be the zero Buffer, and contributes to the gradient of the table.
// gradients is set in W: I has then replaced the kept logits by their gradients.
func (h *head) lossBackward(c *call, dn, n, lse kernels.Buffer, gradients bool) {
	rows := n.N / h.width
	labels, weights := c.mb.Part(h.labels), c.mb.Part(h.labelWeights)
	table, accumulate := c.grad(h.tableUse)
	var logits kernels.Buffer
	if h.kept(rows) > 0 {
		logits = c.mb.Take(h.logits)
	}
	scratch := h.scratch(c, rows, logits)
	for _, s := range c.spans(rows) {
		c.mb.Check(h.dev.HeadLossBackward(kernels.HeadLossBackward{
			X: c.rows(n, s, h.width), Table: c.mb.Weight(h.tableUse), Labels: c.rows(labels, s, 1), Weights: c.rows(weights, s, 1),
			LSE: c.rows(lse, s, 1), Workspace: scratch, Logits: h.logitsOf(c, logits, s), Gradients: gradients,
			DX: c.rows(dn, s, h.width), DTable: table, Seed: c.mb.LossSeed(h.loss),
			Tokens: s.tokens, Width: h.width, Vocabulary: h.vocabulary, Accumulate: accumulate || s.first > 0,
		}))
	}
	c.free(scratch)
	if logits.N > 0 {
		c.pass(h.logits, logits)
	}
}

// scratch returns the workspace for the logits that are not kept.
func (h *head) scratch(c *call, rows int, logits kernels.Buffer) kernels.Buffer {
	if logits.N > 0 && h.keepsAll() {
		return kernels.Buffer{}
	}
	return c.scratch(h.dev.HeadWorkspace(rows, h.width, h.vocabulary))
}

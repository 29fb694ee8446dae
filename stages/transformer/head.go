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
	norm       norm
	table      kernels.Buffer
	tableUse   batchctx.Param

	labels       batchctx.Part
	labelWeights batchctx.Part
	loss         batchctx.Loss
	input, lse   batchctx.Slot // lse: the logarithm of each token's sum of exponentials
	gradNorm     batchctx.Slot // from I for W: the gradient of the output of the norm
}

// head makes the head. Its table is the embedding's, or one of its own.
func (b *builder) head() *head {
	h := &head{vocabulary: b.cfg.Vocabulary}
	h.norm = b.norm(&h.stage, "norm")
	table := tableName
	if b.cfg.Untied {
		table = "head.weight"
	}
	h.tableUse, h.table = b.matrix(&h.stage, table, standardDeviation, b.cfg.Vocabulary, b.cfg.Width)
	h.dev, h.width = b.dev, b.cfg.Width
	h.Name = "head"
	h.Inputs(hidden)
	h.labels = h.Part(Parts[1], batchctx.AtForward, batchctx.AtBackward, batchctx.AtWeight)
	h.labelWeights = h.Part(Parts[2], batchctx.AtForward, batchctx.AtBackward, batchctx.AtWeight)
	h.loss = h.Loss(LossName)
	h.input, h.lse, h.gradNorm = h.Slot("input"), h.Slot("log-sum-exp"), h.Slot("gradient of norm")
	return h
}

func (h *head) forward(c *call, in, _ []kernels.Buffer) {
	x := in[0]
	rows := x.N / h.width
	labels, weights := c.mb.Part(h.labels), c.mb.Part(h.labelWeights)
	lse := c.saved(rows)
	n := c.workspace(x.N)
	c.freeStatistics(c.norm(n, x, &h.norm, rows))
	scratch := c.scratch(h.dev.HeadWorkspace(rows, h.width, h.vocabulary))
	sum, weight, err := h.dev.HeadLoss(kernels.HeadLoss{
		X: n, Table: h.table, Labels: labels, Weights: weights, LSE: lse, Workspace: scratch,
		Tokens: rows, Width: h.width, Vocabulary: h.vocabulary,
	})
	c.mb.Check(err)
	c.mb.Loss(h.loss, sum, weight)
	c.free(scratch)
	c.free(n)
	c.save(h.lse, lse)
	c.saveInput(h.input, x)
}

// forWeight returns what W takes.
func (h *head) forWeight(mb batchctx.Microbatch[kernels.Buffer]) slots {
	s := slots(0).with(trains(mb, h.tableUse), h.input, h.lse)
	return s.with(trains(mb, h.norm.gainUse, h.norm.biasUse), h.input, h.gradNorm)
}

// backward starts from the loss.
func (h *head) backward(c *call, _, gradIn []kernels.Buffer) {
	x, lse := c.mb.Take(h.input), c.mb.Take(h.lse)
	rows := x.N / h.width
	n := c.workspace(x.N)
	s := c.norm(n, x, &h.norm, rows)
	dn := c.carry(h.gradNorm, x.N)
	h.lossBackward(c, dn, n, lse)
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

// weights computes the logits of each tile once more: they are what must never be kept.
func (h *head) weights(c *call) {
	if !c.split.forWeight.has(h.input) {
		return
	}
	x := c.mb.Take(h.input)
	rows := x.N / h.width
	n := c.workspace(x.N)
	s := c.norm(n, x, &h.norm, rows)
	if c.split.forWeight.has(h.lse) {
		h.lossBackward(c, kernels.Buffer{}, n, c.mb.Take(h.lse))
	}
	c.free(n)
	if c.split.forWeight.has(h.gradNorm) {
		c.normBackward(kernels.Buffer{}, c.mb.Take(h.gradNorm), x, s, &h.norm, rows)
	}
	c.freeStatistics(s)
}

// lossBackward sets dn, which may be none, and contributes to the gradient of the
// table.
func (h *head) lossBackward(c *call, dn, n, lse kernels.Buffer) {
	rows := n.N / h.width
	labels, weights := c.mb.Part(h.labels), c.mb.Part(h.labelWeights)
	table, accumulate := c.grad(h.tableUse)
	scratch := c.scratch(h.dev.HeadWorkspace(rows, h.width, h.vocabulary))
	c.mb.Check(h.dev.HeadLossBackward(kernels.HeadLossBackward{
		X: n, Table: h.table, Labels: labels, Weights: weights, LSE: lse, Workspace: scratch,
		DX: dn, DTable: table, Seed: c.mb.LossSeed(h.loss),
		Tokens: rows, Width: h.width, Vocabulary: h.vocabulary, Accumulate: accumulate,
	}))
	c.free(scratch)
}

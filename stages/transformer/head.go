package transformer

import (
	"context"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

// head is the final norm, the projection onto the vocabulary and the loss.
type head struct {
	stage
	vocabulary int
	norm       norm
	table      kernels.Buffer
	tableUse   batchctx.Param
}

// What the head saves.
const (
	slotHeadInput batchctx.Slot = iota + 1
	slotHeadLSE                 // the logarithm of each token's sum of exponentials

	slotGradNorm // from I for W: the gradient of the output of the norm
	headSlots    = iota
)

// The head's reads and its loss.
const (
	readLabels batchctx.Part = iota + 1
	readWeights

	headLoss batchctx.Loss = 1
)

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
	always := batchctx.AtForward | batchctx.AtBackward | batchctx.AtWeight
	h.spec = stages.Spec{
		Name: "head", Inputs: hidden, Slots: headSlots, Losses: []string{LossName},
		Reads: []stages.Read{readLabels - 1: {Part: Parts[1], At: always}, readWeights - 1: {Part: Parts[2], At: always}},
	}
	return h
}

// Forward records the loss.
func (h *head) Forward(_ context.Context, mb batchctx.Microbatch[kernels.Buffer], in, _ []kernels.Buffer) error {
	c := call{dev: h.dev, mb: mb}
	defer c.abandon()
	h.forward(&c, in[0])
	return c.done()
}

func (h *head) forward(c *call, x kernels.Buffer) {
	rows := x.N / h.width
	labels, weights := c.mb.Part(readLabels), c.mb.Part(readWeights)
	lse := c.saved(rows)
	n := c.workspace(x.N)
	c.freeStatistics(c.norm(n, x, &h.norm, rows))
	scratch := c.scratch(h.dev.HeadWorkspace(rows, h.width, h.vocabulary))
	sum, weight, err := h.dev.HeadLoss(kernels.HeadLoss{
		X: n, Table: h.table, Labels: labels, Weights: weights, LSE: lse, Workspace: scratch,
		Tokens: rows, Width: h.width, Vocabulary: h.vocabulary,
	})
	c.mb.Check(err)
	c.mb.Loss(headLoss, sum, weight)
	c.free(scratch)
	c.free(n)
	c.save(slotHeadLSE, lse)
	c.saveInput(slotHeadInput, x)
}

// Backward starts the backward from the loss: it returns the gradient of the
// head's input, where it is wanted, and contributes to the gradients of the norm
// and the table.
func (h *head) Backward(_ context.Context, mb batchctx.Microbatch[kernels.Buffer], _, gradIn []kernels.Buffer) error {
	c := call{dev: h.dev, mb: mb}
	defer c.abandon()
	h.backward(&c, gradIn)
	return c.done()
}

// BackwardInput starts the backward from the loss: it returns the gradient of the
// head's input, where it is wanted.
func (h *head) BackwardInput(_ context.Context, mb batchctx.Microbatch[kernels.Buffer], _, gradIn []kernels.Buffer) error {
	c := call{dev: h.dev, mb: mb, split: split{input: true, forWeight: h.forWeight(mb)}}
	defer c.abandon()
	h.backward(&c, gradIn)
	return c.done()
}

// BackwardWeight contributes to the gradients of the norm and the table. It computes
// the logits of each tile once more: they are what must never be kept.
func (h *head) BackwardWeight(_ context.Context, mb batchctx.Microbatch[kernels.Buffer]) error {
	c := call{dev: h.dev, mb: mb, split: split{forWeight: h.forWeight(mb)}}
	defer c.abandon()
	h.weights(&c)
	return c.done()
}

// forWeight returns what W takes.
func (h *head) forWeight(mb batchctx.Microbatch[kernels.Buffer]) slots {
	s := slots(0).with(trains(mb, h.tableUse), slotHeadInput, slotHeadLSE)
	return s.with(trains(mb, h.norm.gainUse, h.norm.biasUse), slotHeadInput, slotGradNorm)
}

// backward is B and I.
func (h *head) backward(c *call, gradIn []kernels.Buffer) {
	x, lse := c.mb.Take(slotHeadInput), c.mb.Take(slotHeadLSE)
	rows := x.N / h.width
	n := c.workspace(x.N)
	s := c.norm(n, x, &h.norm, rows)
	dn := c.carry(slotGradNorm, x.N)
	h.lossBackward(c, dn, n, lse)
	c.free(n)
	c.pass(slotHeadLSE, lse)
	var dx kernels.Buffer
	if gradIn != nil {
		dx = c.alloc(memory.ActGrad, x.N)
	}
	c.normBackward(dx, dn, x, s, &h.norm, rows)
	c.freeStatistics(s)
	c.leave(slotGradNorm, dn)
	c.pass(slotHeadInput, x)
	if gradIn != nil {
		c.hand(&gradIn[0], dx)
	}
}

// weights is W.
func (h *head) weights(c *call) {
	if !c.split.forWeight.has(slotHeadInput) {
		return
	}
	x := c.mb.Take(slotHeadInput)
	rows := x.N / h.width
	n := c.workspace(x.N)
	s := c.norm(n, x, &h.norm, rows)
	if c.split.forWeight.has(slotHeadLSE) {
		h.lossBackward(c, kernels.Buffer{}, n, c.mb.Take(slotHeadLSE))
	}
	c.free(n)
	if c.split.forWeight.has(slotGradNorm) {
		c.normBackward(kernels.Buffer{}, c.mb.Take(slotGradNorm), x, s, &h.norm, rows)
	}
	c.freeStatistics(s)
}

// lossBackward sets dn, which may be none, and contributes to the gradient of the
// table.
func (h *head) lossBackward(c *call, dn, n, lse kernels.Buffer) {
	rows := n.N / h.width
	labels, weights := c.mb.Part(readLabels), c.mb.Part(readWeights)
	table, accumulate := c.grad(h.tableUse)
	scratch := c.scratch(h.dev.HeadWorkspace(rows, h.width, h.vocabulary))
	c.mb.Check(h.dev.HeadLossBackward(kernels.HeadLossBackward{
		X: n, Table: h.table, Labels: labels, Weights: weights, LSE: lse, Workspace: scratch,
		DX: dn, DTable: table, Seed: c.mb.LossSeed(headLoss),
		Tokens: rows, Width: h.width, Vocabulary: h.vocabulary, Accumulate: accumulate,
	}))
	c.free(scratch)
}

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
	tableUse   int
}

// What the head saves.
const (
	slotHeadInput = iota
	slotHeadLSE   // the logarithm of each token's sum of exponentials
	headSlots
)

// The head's reads and its loss.
const (
	readLabels = iota
	readWeights

	headLoss = 0
)

// head makes the head. A nil table is one of its own; a tied one gets another
// accumulator for its gradient.
func (b *builder) head(table *Parameter) *head {
	h := &head{vocabulary: b.cfg.Vocabulary}
	h.norm = b.norm(&h.stage, "norm")
	if table == nil {
		table = b.matrix("head.weight", standardDeviation, b.cfg.Vocabulary, b.cfg.Width)
		h.tableUse = h.use(table, table.Grad)
	} else {
		h.tableUse = h.use(table, b.zeros(table.Weight.N))
	}
	h.table = table.Weight
	h.dev, h.width = b.dev, b.cfg.Width
	both := batchctx.AtForward | batchctx.AtBackward
	h.spec = stages.Spec{
		Name: "head", Inputs: hidden, Slots: headSlots, Losses: []string{LossName},
		Reads: []stages.Read{readLabels: {Part: Parts[1], At: both}, readWeights: {Part: Parts[2], At: both}},
	}
	return h
}

// Forward records the loss.
func (h *head) Forward(_ context.Context, mb *batchctx.Microbatch[kernels.Buffer], in, _ []kernels.Buffer) error {
	c := call{dev: h.dev, mb: mb}
	h.forward(&c, in[0])
	return c.done()
}

func (h *head) forward(c *call, x kernels.Buffer) {
	rows := x.N / h.width
	labels, weights := c.part(readLabels), c.part(readWeights)
	lse := c.saved(rows)
	n := c.workspace(x.N)
	c.freeStatistics(c.norm(n, x, &h.norm, rows))
	scratch := c.scratch(h.dev.HeadWorkspace(rows, h.width, h.vocabulary))
	if c.err == nil {
		var sum, weight float64
		sum, weight, c.err = h.dev.HeadLoss(kernels.HeadLoss{
			X: n, Table: h.table, Labels: labels, Weights: weights, LSE: lse, Workspace: scratch,
			Tokens: rows, Width: h.width, Vocabulary: h.vocabulary,
		})
		if c.err == nil {
			c.err = c.mb.Loss(headLoss, sum, weight)
		}
	}
	c.free(scratch)
	c.free(n)
	c.save(slotHeadLSE, lse)
	c.saveInput(slotHeadInput, x)
}

// Backward starts the backward from the loss: it returns the gradient of the
// head's input, where it is wanted, and contributes to the gradients of the norm
// and the table.
func (h *head) Backward(_ context.Context, mb *batchctx.Microbatch[kernels.Buffer], _, gradIn []kernels.Buffer) error {
	c := call{dev: h.dev, mb: mb}
	h.backward(&c, gradIn)
	return c.done()
}

func (h *head) backward(c *call, gradIn []kernels.Buffer) {
	x, lse := c.take(slotHeadInput), c.take(slotHeadLSE)
	rows := x.N / h.width
	labels, weights := c.part(readLabels), c.part(readWeights)
	table, accumulate := c.grad(h.tableUse)
	n := c.workspace(x.N)
	s := c.norm(n, x, &h.norm, rows)
	dn := c.workspace(x.N)
	scratch := c.scratch(h.dev.HeadWorkspace(rows, h.width, h.vocabulary))
	if c.err == nil {
		var seed float32
		if seed, c.err = c.mb.LossSeed(headLoss); c.err == nil {
			c.err = h.dev.HeadLossBackward(kernels.HeadLossBackward{
				X: n, Table: h.table, Labels: labels, Weights: weights, LSE: lse, Workspace: scratch,
				DX: dn, DTable: table, Seed: seed,
				Tokens: rows, Width: h.width, Vocabulary: h.vocabulary, Accumulate: accumulate,
			})
		}
	}
	c.free(scratch)
	c.free(n)
	c.end(slotHeadLSE)
	var dx kernels.Buffer
	if gradIn != nil {
		dx = c.alloc(memory.ActGrad, x.N)
	}
	c.normBackward(dx, dn, x, s, &h.norm, rows)
	c.freeStatistics(s)
	c.free(dn)
	c.end(slotHeadInput)
	if gradIn != nil {
		c.hand(&gradIn[0], dx)
	}
}

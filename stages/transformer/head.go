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

	slotGradNorm // from I for W: the gradient of the output of the norm
	headSlots
)

// The head's reads and its loss.
const (
	readLabels = iota
	readWeights

	headLoss = 0
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
		Reads: []stages.Read{readLabels: {Part: Parts[1], At: always}, readWeights: {Part: Parts[2], At: always}},
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

// BackwardInput starts the backward from the loss: it returns the gradient of the
// head's input, where it is wanted.
func (h *head) BackwardInput(_ context.Context, mb *batchctx.Microbatch[kernels.Buffer], _, gradIn []kernels.Buffer) error {
	c := call{dev: h.dev, mb: mb, split: split{input: true, forWeight: h.forWeight(mb)}}
	h.backward(&c, gradIn)
	return c.done()
}

// BackwardWeight contributes to the gradients of the norm and the table. It computes
// the logits of each tile once more: they are what must never be kept.
func (h *head) BackwardWeight(_ context.Context, mb *batchctx.Microbatch[kernels.Buffer]) error {
	c := call{dev: h.dev, mb: mb, split: split{forWeight: h.forWeight(mb)}}
	h.weights(&c)
	return c.done()
}

// forWeight returns what W takes.
func (h *head) forWeight(mb *batchctx.Microbatch[kernels.Buffer]) slots {
	s := slots(0).with(trains(mb, h.tableUse), slotHeadInput, slotHeadLSE)
	return s.with(trains(mb, h.norm.gainUse, h.norm.biasUse), slotHeadInput, slotGradNorm)
}

// backward is B and I.
func (h *head) backward(c *call, gradIn []kernels.Buffer) {
	x, lse := c.take(slotHeadInput), c.take(slotHeadLSE)
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
	x := c.take(slotHeadInput)
	rows := x.N / h.width
	n := c.workspace(x.N)
	s := c.norm(n, x, &h.norm, rows)
	if c.split.forWeight.has(slotHeadLSE) {
		h.lossBackward(c, kernels.Buffer{}, n, c.take(slotHeadLSE))
	}
	c.free(n)
	if c.split.forWeight.has(slotGradNorm) {
		c.normBackward(kernels.Buffer{}, c.take(slotGradNorm), x, s, &h.norm, rows)
	}
	c.freeStatistics(s)
}

// lossBackward sets dn, which may be none, and contributes to the gradient of the
// table.
func (h *head) lossBackward(c *call, dn, n, lse kernels.Buffer) {
	rows := n.N / h.width
	labels, weights := c.part(readLabels), c.part(readWeights)
	table, accumulate := c.grad(h.tableUse)
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
}

package cuda

import (
	"github.com/weir-ml/weir/kernels"
)

// Logits are computed in tiles of tokens and of the vocabulary.
const (
	headTokens     = 512
	headVocabulary = 1024
	headThreads    = 128

	headRows = 1024 // offset in scratch memory of the state of a tile's tokens, three float64 each
)

// HeadWorkspace returns the number of elements in one tile of logits.
func (d *Device) HeadWorkspace(tokens, width, vocabulary int) int {
	return times(min(tokens, headTokens), min(vocabulary, headVocabulary))
}

// head holds the addresses of the operands of HeadLoss or of its backward pass.
type head struct {
	operation
	x, table, labels, weights, lse uint64
	workspace                      uint64 // a tile of logits
	logits                         uint64 // space for the tiles that follow
	room                           int
	tokens, width, vocabulary      int
}

func (d *Device) head(name string, op kernels.HeadLoss, refused error) head {
	h := head{operation: d.begin(name, refused), tokens: op.Tokens, width: op.Width, vocabulary: op.Vocabulary}
	h.fits(op.Tokens, op.Width, op.Vocabulary)
	h.inRange("Labels", op.Labels, op.Vocabulary)
	h.x, h.table, h.labels, h.weights = h.at(op.X), h.at(op.Table), h.at(op.Labels), h.at(op.Weights)
	h.lse, h.workspace, h.logits, h.room = h.at(op.LSE), h.at(op.Workspace), h.at(op.Logits), op.Logits.N
	return h
}

// of returns the address of element i of a float32 or int32 buffer.
func of(at uint64, i int) uint64 { return at + 4*uint64(i) }

// tile returns the address for the next n logits, and whether they are kept.
func (h *head) tile(n int) (logits uint64, kept bool) {
	if n > h.room {
		return h.workspace, false
	}
	logits = h.logits
	h.logits, h.room = of(h.logits, n), h.room-n
	return logits, true
}

// compute computes the logits for a tile of tokens and rows of the table.
func (h *head) compute(logits uint64, t0, tokens, v0, cols int) {
	h.matmul(product{
		a: of(h.x, t0*h.width), b: of(h.table, v0*h.width), c: logits, m: tokens, n: cols, k: h.width, transB: true,
	})
}

// HeadLoss queues the computation of the loss and waits for the two sums.
func (d *Device) HeadLoss(op kernels.HeadLoss) (sum, weight float64, err error) {
	h := d.headLoss("HeadLoss", op)
	var sums [2]float64
	words(&h.operation, sums[:], d.scratch)
	return sums[0], sums[1], h.end()
}

// headLoss merges the logits tile by tile into a running maximum and sum, and leaves the two
// results in scratch memory.
func (d *Device) headLoss(name string, op kernels.HeadLoss) head {
	_, _, err := d.checks.HeadLoss(op)
	h := d.head(name, op, err)
	total, rows := uint64(d.scratch), uint64(d.scratch)+headRows
	for t0 := 0; t0 < h.tokens && h.err == nil; t0 += headTokens {
		tokens := min(headTokens, h.tokens-t0)
		for v0 := 0; v0 < h.vocabulary; v0 += headVocabulary {
			cols := min(headVocabulary, h.vocabulary-v0)
			logits, _ := h.tile(tokens * cols)
			h.compute(logits, t0, tokens, v0, cols)
			h.line("head_softmax", tokens, headThreads, rows, logits, of(h.labels, t0), uint64(v0), uint64(cols))
		}
		h.line("head_sum", 1, 256, of(h.lse, t0), total, rows, of(h.weights, t0), uint64(tokens), flag(t0 == 0))
	}
	return h
}

// HeadLossBackward takes a tile's kept logits or recomputes them, replaces them by their
// gradient, and multiplies that by Table for DX and by X for DTable. Tokens of weight 0 do not
// contribute.
func (d *Device) HeadLossBackward(op kernels.HeadLossBackward) error {
	h := d.head("HeadLossBackward", kernels.HeadLoss{
		X: op.X, Table: op.Table, Labels: op.Labels, Weights: op.Weights, LSE: op.LSE, Workspace: op.Workspace, Logits: op.Logits,
		Tokens: op.Tokens, Width: op.Width, Vocabulary: op.Vocabulary,
	}, d.checks.HeadLossBackward(op))
	dx, dtable := h.at(op.DX), h.at(op.DTable)
	for t0 := 0; t0 < h.tokens && h.err == nil; t0 += headTokens {
		tokens := min(headTokens, h.tokens-t0)
		for v0 := 0; v0 < h.vocabulary; v0 += headVocabulary {
			cols := min(headVocabulary, h.vocabulary-v0)
			logits, kept := h.tile(tokens * cols)
			if !kept {
				h.compute(logits, t0, tokens, v0, cols)
			}
			if !kept || !op.Gradients { // otherwise an earlier call has replaced the kept logits by their gradient
				h.each("head_grad", tokens*cols, logits, of(h.lse, t0), of(h.weights, t0), of(h.labels, t0), word(op.Seed),
					uint64(v0), uint64(tokens*cols), uint64(cols))
			}
			if dx != 0 {
				h.matmul(product{
					a: logits, b: of(h.table, v0*h.width), c: of(dx, t0*h.width), m: tokens, n: h.width, k: cols, accumulate: v0 > 0,
				})
			}
			if dtable != 0 {
				h.matmul(product{
					a: logits, b: of(h.x, t0*h.width), c: of(dtable, v0*h.width), alive: of(h.weights, t0),
					m: cols, n: h.width, k: tokens, transA: true, accumulate: op.Accumulate || t0 > 0,
				})
			}
		}
	}
	if dx != 0 {
		h.each("head_clear", op.DX.N, dx, h.weights, uint64(op.DX.N), uint64(h.width))
	}
	return h.end()
}

package kernels

import (
	"math"

	"github.com/weir-ml/weir/internal/arithmetic/gemm"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// Logits are computed in tiles of tokens and of the vocabulary. How the vocabulary is tiled does
// not depend on the tokens, so that the loss of a token does not depend on other tokens. The
// stride of the rows is not 4 KiB, because that would map a column to a single set of the
// first-level cache.
const (
	headTokens     = 256
	headVocabulary = 1040
)

// HeadWorkspace returns the number of elements in one tile of logits.
func (h *host) HeadWorkspace(tokens, width, vocabulary int) int {
	if h.target != nil {
		return h.target.HeadWorkspace(tokens, width, vocabulary)
	}
	return size(min(tokens, headTokens), min(vocabulary, headVocabulary))
}

// headViews holds the opened buffers of HeadLoss or of its backward pass.
type headViews struct {
	x, table, weights, lse []float32
	labels                 []int32
	workspace              []float32 // a tile of logits
	kept                   []float32 // space for the tiles that follow
	dx, dtable             []float32 // for the backward pass; nil if not computed
}

func openHeadLoss(c *call, op HeadLoss, need int) (v headViews) {
	c.dimensions("Tokens Width Vocabulary", op.Tokens, op.Width, op.Vocabulary)
	v.x = c.floats("X", op.X, size(op.Tokens, op.Width))
	v.table = c.floats("Table", op.Table, size(op.Vocabulary, op.Width))
	v.labels = exactly[int32](c, "Labels", op.Labels, op.Tokens)
	v.weights = c.floats("Weights", op.Weights, op.Tokens)
	v.lse = c.floats("LSE", op.LSE, op.Tokens)
	v.kept = c.optional("Logits", op.Logits, op.Logits.N)
	if op.Logits.N < size(op.Tokens, op.Vocabulary) {
		v.workspace = roomy[float32](c, "Workspace", op.Workspace, need)
	}
	c.apart("Workspace", op.Workspace, op.X, op.Table, op.Labels, op.Weights, op.LSE)
	c.apart("LSE", op.LSE, op.X, op.Table, op.Labels, op.Weights)
	c.apart("Logits", op.Logits, op.X, op.Table, op.Labels, op.Weights, op.LSE, op.Workspace)
	return v
}

// tile returns the memory for the next n logits, and whether they are kept: a tile is kept only
// if it fits completely.
func (v *headViews) tile(n int) (logits []float32, kept bool) {
	if n > len(v.kept) {
		return v.workspace[:n], false
	}
	logits, v.kept = v.kept[:n], v.kept[n:]
	return logits, true
}

// HeadLoss computes the loss of each token in float64 from logits in float32, with a running
// maximum and sum over the tiles of the vocabulary (online softmax, Milakov and Gimelshein 2018).
// A token of weight 0 adds exactly 0. A label out of range gives ErrShape, whatever its weight.
func (h *host) HeadLoss(op HeadLoss) (sum, weight float64, err error) {
	c := h.call("HeadLoss")
	v := openHeadLoss(&c, op, h.HeadWorkspace(op.Tokens, op.Width, op.Vocabulary))
	c.inRange("Labels", v.labels, op.Vocabulary)
	if c.done() {
		return 0, 0, c.err
	}
	rows := &h.softmaxRows
	for t0 := 0; t0 < op.Tokens; t0 += headTokens {
		tokens := min(headTokens, op.Tokens-t0)
		for v0 := 0; v0 < op.Vocabulary; v0 += headVocabulary {
			cols := min(headVocabulary, op.Vocabulary-v0)
			logits, _ := v.tile(tokens * cols)
			h.logits(&v, logits, t0, tokens, v0, cols, op.Width)
			t := softmaxTask{rows: rows[:tokens], logits: logits, labels: v.labels[t0:], v0: v0, cols: cols}
			launch(h, &h.operations.softmax, t, partsOf(tokens*cols))
		}
		for i := range tokens {
			lse := rows[i].top + math.Log(rows[i].sum)
			v.lse[t0+i] = float32(lse)
			if w := float64(v.weights[t0+i]); w != 0 {
				sum += float64(w * (lse - rows[i].label))
				weight += w
			}
		}
	}
	return sum, weight, nil
}

// logits computes a tokens×cols tile of logits, which begins at token t0 and at row v0 of the
// table.
func (h *host) logits(v *headViews, logits []float32, t0, tokens, v0, cols, width int) {
	x := gemm.Matrix{Data: v.x[t0*width:], Stride: width}
	table := gemm.Matrix{Data: v.table[v0*width:], Stride: width, Trans: true}
	h.product.multiply(tokens, cols, width, x, table, logits, cols, false)
}

// softmaxTask adds a tile of logits to the running sums. Its parts are ranges of tokens.
type softmaxTask struct {
	rows     []softmaxRow
	logits   []float32
	labels   []int32
	v0, cols int
}

func (t *softmaxTask) part(i, parts int, w *worker) {
	begin, end := share(len(t.rows), 1, i, parts)
	for r := begin; r < end; r++ {
		t.rows[r].add(w.vector, t.logits[r*t.cols:][:t.cols], t.v0, int(t.labels[r]))
	}
}

// softmaxRow is the running state of a token's softmax.
type softmaxRow struct {
	top   float64 // the largest logit
	sum   float64 // of exponentials relative to top
	label float64 // the logit of the label
}

// lowestTop is the initial value of a running maximum of logits or scores. It is finite, so
// that the exponential of -Inf relative to it is 0, and a tile that contains only -Inf adds 0.
const lowestTop = -math.MaxFloat32

// add adds logits, the first of which has index v0, to the running state. v0 = 0 starts a new
// row.
func (r *softmaxRow) add(set vector.Set, logits []float32, v0, label int) {
	top := max(set.Largest(logits), lowestTop)
	if v0 == 0 {
		*r = softmaxRow{top: float64(top)}
	} else if float64(top) > r.top {
		r.sum *= math.Exp(r.top - float64(top))
		r.top = float64(top)
	}
	r.sum += set.SumExp(logits, float32(r.top))
	if i := label - v0; i >= 0 && i < len(logits) {
		r.label = float64(logits[i])
	}
}

// HeadLossBackward takes a tile's kept logits or recomputes them, replaces them by their
// gradient, Seed·weight·(softmax - onehot), and multiplies that by Table for DX and by X for
// DTable. A token of weight 0 has a gradient of 0. Because 0 times a non-finite number is NaN,
// its row of DX is cleared instead, and its row of X is left out of the product if it is not
// finite.
func (h *host) HeadLossBackward(op HeadLossBackward) error {
	c := h.call("HeadLossBackward")
	v := openHeadLoss(&c, HeadLoss{
		X: op.X, Table: op.Table, Labels: op.Labels, Weights: op.Weights, LSE: op.LSE, Workspace: op.Workspace, Logits: op.Logits,
		Tokens: op.Tokens, Width: op.Width, Vocabulary: op.Vocabulary,
	}, h.HeadWorkspace(op.Tokens, op.Width, op.Vocabulary))
	v.dx = c.optional("DX", op.DX, size(op.Tokens, op.Width))
	v.dtable = c.optional("DTable", op.DTable, size(op.Vocabulary, op.Width))
	c.apart("DX", op.DX, op.X, op.Table, op.Labels, op.Weights, op.LSE, op.Workspace, op.Logits, op.DTable)
	c.apart("DTable", op.DTable, op.X, op.Table, op.Labels, op.Weights, op.LSE, op.Workspace, op.Logits)
	c.inRange("Labels", v.labels, op.Vocabulary)
	if c.done() {
		return c.err
	}
	for t0 := 0; t0 < op.Tokens; t0 += headTokens {
		tokens := min(headTokens, op.Tokens-t0)
		var out [headTokens]bool // rows left out of the product for DTable
		for i, w := range v.weights[t0:][:tokens] {
			if w == 0 {
				total := h.vector.Total(v.x[(t0+i)*op.Width:][:op.Width])
				out[i] = total-total != 0
			}
		}
		for v0 := 0; v0 < op.Vocabulary; v0 += headVocabulary {
			cols := min(headVocabulary, op.Vocabulary-v0)
			logits, kept := v.tile(tokens * cols)
			if !kept {
				h.logits(&v, logits, t0, tokens, v0, cols, op.Width)
			}
			if !kept || !op.Gradients {
				t := softmaxGradTask{
					logits: logits, lse: v.lse[t0:][:tokens], weights: v.weights[t0:], labels: v.labels[t0:], seed: op.Seed, v0: v0, cols: cols,
				}
				launch(h, &h.operations.softmaxGrad, t, partsOf(tokens*cols))
			}
			if v.dx != nil {
				grad := gemm.Matrix{Data: logits, Stride: cols}
				table := gemm.Matrix{Data: v.table[v0*op.Width:], Stride: op.Width}
				h.product.multiply(tokens, op.Width, cols, grad, table, v.dx[t0*op.Width:], op.Width, v0 > 0)
			}
			if v.dtable != nil {
				h.headTable(v.dtable[v0*op.Width:][:cols*op.Width], logits, v.x[t0*op.Width:], out[:tokens], cols, op.Width, op.Accumulate || t0 > 0)
			}
		}
		if v.dx != nil {
			for i, w := range v.weights[t0:][:tokens] {
				if w == 0 {
					clear(v.dx[(t0+i)*op.Width:][:op.Width])
				}
			}
		}
	}
	return nil
}

// headTable computes rows of DTable, one for each column of the logits' gradients, from the rows
// of x that are not left out.
func (h *host) headTable(dtable, grad, x []float32, out []bool, cols, width int, accumulate bool) {
	for from, to := 0, 0; from < len(out); from = to + 1 {
		for to = from; to < len(out) && !out[to]; to++ {
		}
		if to > from {
			grads := gemm.Matrix{Data: grad[from*cols:], Stride: cols, Trans: true}
			rows := gemm.Matrix{Data: x[from*width:], Stride: width}
			h.product.multiply(cols, width, to-from, grads, rows, dtable, width, accumulate)
			accumulate = true
		}
	}
	if !accumulate {
		clear(dtable)
	}
}

// softmaxGradTask replaces a tile of logits by gradients. Its parts are ranges of tokens.
type softmaxGradTask struct {
	logits, lse, weights []float32
	labels               []int32
	seed                 float32
	v0, cols             int
}

func (t *softmaxGradTask) part(i, parts int, w *worker) {
	begin, end := share(len(t.lse), 1, i, parts)
	for r := begin; r < end; r++ {
		softmaxGrad(w.vector, t.logits[r*t.cols:][:t.cols], t.lse[r], t.seed*t.weights[r], int(t.labels[r])-t.v0)
	}
}

// softmaxGrad replaces logits by scale·(softmax - onehot). label is the index of the label, if
// it is one of these logits.
func softmaxGrad(set vector.Set, logits []float32, lse, scale float32, label int) {
	if scale == 0 {
		clear(logits)
		return
	}
	set.Exp(logits, lse, scale)
	if label >= 0 && label < len(logits) {
		logits[label] -= scale
	}
}

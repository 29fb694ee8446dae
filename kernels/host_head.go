package kernels

import "math"

// headTile is the number of tokens whose logits exist at a time.
const headTile = 64

// HeadWorkspace returns the elements of the logits of one tile of tokens.
func (h *Host) HeadWorkspace(tokens, _, vocabulary int) int {
	return size(min(tokens, headTile), vocabulary)
}

// headViews are the opened buffers of HeadLoss, and of its backward.
type headViews struct {
	x, table, weights, lse, logits []float32
	labels                         []int32
	dx, dtable                     []float32 // of the backward; nil where not computed
}

func openHeadLoss(c *call, op HeadLoss, need int) (v headViews) {
	c.dimension("Tokens", op.Tokens)
	c.dimension("Width", op.Width)
	c.dimension("Vocabulary", op.Vocabulary)
	v.x = c.floats("X", op.X, size(op.Tokens, op.Width))
	v.table = c.floats("Table", op.Table, size(op.Vocabulary, op.Width))
	v.labels = c.ints("Labels", op.Labels, op.Tokens)
	v.weights = c.floats("Weights", op.Weights, op.Tokens)
	v.lse = c.floats("LSE", op.LSE, op.Tokens)
	v.logits = c.roomy("Workspace", op.Workspace, need)
	c.apart("Workspace", op.Workspace, op.X, op.Table, op.Labels, op.Weights, op.LSE)
	c.apart("LSE", op.LSE, op.X, op.Table, op.Labels, op.Weights)
	return v
}

// HeadLoss computes the loss of each token in float64 from logits in float32. A
// token of weight 0 adds exactly nothing. A label out of range is ErrShape,
// whatever its weight.
func (h *Host) HeadLoss(op HeadLoss) (sum, weight float64, err error) {
	c := h.call("HeadLoss")
	v := openHeadLoss(&c, op, h.HeadWorkspace(op.Tokens, op.Width, op.Vocabulary))
	c.inRange("Labels", v.labels, op.Vocabulary)
	if c.err != nil {
		return 0, 0, c.err
	}
	for t0 := 0; t0 < op.Tokens; t0 += headTile {
		tokens := min(headTile, op.Tokens-t0)
		h.logits(&v, t0, tokens, op.Width, op.Vocabulary)
		for i := range tokens {
			t := t0 + i
			row := v.logits[i*op.Vocabulary:][:op.Vocabulary]
			label := float64(row[v.labels[t]])
			lse := logSumExp(row)
			v.lse[t] = float32(lse)
			if w := float64(v.weights[t]); w != 0 {
				sum += w * (lse - label)
				weight += w
			}
		}
	}
	return sum, weight, nil
}

// logits computes those of the given tokens from t0 on.
func (h *Host) logits(v *headViews, t0, tokens, width, vocabulary int) {
	x := matrix{data: v.x[t0*width:], ld: width}
	table := matrix{data: v.table, ld: width, trans: true}
	h.product.multiply(tokens, vocabulary, width, x, table, v.logits, vocabulary, false)
}

// logSumExp returns the logarithm of Σ e^x in float64.
func logSumExp(x []float32) float64 {
	top := x[0]
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	var total float64
	for _, v := range x {
		total += float64(exp(v - top))
	}
	return float64(top) + math.Log(total)
}

func openHeadLossBackward(c *call, op HeadLossBackward, need int) (v headViews) {
	v = openHeadLoss(c, HeadLoss{
		X: op.X, Table: op.Table, Labels: op.Labels, Weights: op.Weights,
		LSE: op.LSE, Workspace: op.Workspace,
		Tokens: op.Tokens, Width: op.Width, Vocabulary: op.Vocabulary,
	}, need)
	v.dx = c.optional("DX", op.DX, size(op.Tokens, op.Width))
	v.dtable = c.optional("DTable", op.DTable, size(op.Vocabulary, op.Width))
	c.apart("DX", op.DX, op.X, op.Table, op.Labels, op.Weights, op.LSE, op.Workspace, op.DTable)
	c.apart("DTable", op.DTable, op.X, op.Table, op.Labels, op.Weights, op.LSE, op.Workspace)
	return v
}

// HeadLossBackward recomputes the logits of a tile, turns them into their
// gradient in place, Seed·weight·(softmax - onehot), and multiplies by Table for
// DX and by X for DTable. A token of weight 0 has the gradient 0.
func (h *Host) HeadLossBackward(op HeadLossBackward) error {
	c := h.call("HeadLossBackward")
	v := openHeadLossBackward(&c, op, h.HeadWorkspace(op.Tokens, op.Width, op.Vocabulary))
	c.inRange("Labels", v.labels, op.Vocabulary)
	if c.err != nil {
		return c.err
	}
	for t0 := 0; t0 < op.Tokens; t0 += headTile {
		tokens := min(headTile, op.Tokens-t0)
		h.logits(&v, t0, tokens, op.Width, op.Vocabulary)
		for i := range tokens {
			t := t0 + i
			row := v.logits[i*op.Vocabulary:][:op.Vocabulary]
			if v.weights[t] == 0 {
				clear(row)
				continue
			}
			scale, lse := op.Seed*v.weights[t], v.lse[t]
			for j, x := range row {
				row[j] = scale * exp(x-lse)
			}
			row[v.labels[t]] -= scale
		}
		grad := matrix{data: v.logits, ld: op.Vocabulary}
		if v.dx != nil {
			table := matrix{data: v.table, ld: op.Width}
			h.product.multiply(tokens, op.Width, op.Vocabulary, grad, table, v.dx[t0*op.Width:], op.Width, false)
		}
		if v.dtable != nil {
			grad.trans = true
			x := matrix{data: v.x[t0*op.Width:], ld: op.Width}
			h.product.multiply(op.Vocabulary, op.Width, tokens, grad, x, v.dtable, op.Width, op.Accumulate || t0 > 0)
		}
	}
	return nil
}

package kernels

import "github.com/weir-ml/weir/internal/arithmetic/vector"

// CausalAttentionBackward iterates over tiles of queries, and for each over the tiles of keys up
// to it. The weights p = exp(score - LSE) are recomputed tile by tile. With delta = Σ dout·out
// for each query (Dao et al. 2022):
//
//	dv = Σ p·dout    ds = scale·p·(dout·v - delta)    dq = Σ ds·k    dk = Σ ds·q
//
// All gradients are accumulated in place. The gradient of a tile of keys is initialized with the
// contribution of the queries at the same positions.
func (h *host) CausalAttentionBackward(op CausalAttentionBackward) error {
	c := h.call("CausalAttentionBackward")
	_, need := h.AttentionWorkspace(op.Tokens, op.Heads, op.HeadDim)
	c.dimensions("Tokens Heads HeadDim", op.Tokens, op.Heads, op.HeadDim)
	all := size(op.Tokens, size(op.Heads, op.HeadDim))
	t := attentionGradTask{
		dout: c.floats("DOut", op.DOut, all), qkv: c.floats("QKV", op.QKV, size(3, all)), out: c.floats("Out", op.Out, all),
		lse: c.floats("LSE", op.LSE, size(op.Heads, op.Tokens)), dqkv: c.floats("DQKV", op.DQKV, size(3, all)),
		workspace: roomy[float32](&c, "Workspace", op.Workspace, need), op: op,
	}
	c.apart("DQKV", op.DQKV, op.DOut, op.QKV, op.Out, op.LSE, op.Workspace)
	c.apart("Workspace", op.Workspace, op.DOut, op.QKV, op.Out, op.LSE)
	if c.done() {
		return c.err
	}
	launch(h, &h.operations.attentionGrad, t, op.Heads)
	return nil
}

// attentionGradTask computes CausalAttentionBackward. Each part is a head.
type attentionGradTask struct {
	dout, qkv, out, lse, dqkv, workspace []float32
	op                                   CausalAttentionBackward
}

func (t *attentionGradTask) part(head, _ int, w *worker) {
	_, scratch := attentionScratch(t.op.Tokens, t.op.HeadDim)
	b := newAttentionGrad(w.vector, t, head, t.workspace[w.index*scratch:])
	b.rows(t.out[head*t.op.HeadDim:])
	for q0 := 0; q0 < t.op.Tokens; q0 += attentionTile {
		b.queries(q0, min(attentionTile, t.op.Tokens-q0))
	}
}

// attentionGrad computes one head of the backward pass. Rows of dq, dkey and dvalue are stride
// elements apart, and rows of dout width elements.
type attentionGrad struct {
	attentionView
	dq, dkey, dvalue []float32
	dout             []float32
	qT, doutT        []float32 // tiles, transposed: HeadDim × room; q is scaled
	qRows, doutRows  []float32 // the same tiles, not transposed, with contiguous rows
	kRows            []float32 // a tile of keys with contiguous rows
	p, ds            []float32 // keys × queries
	delta            []float32 // per token
}

func newAttentionGrad(set vector.Set, v *attentionGradTask, head int, workspace []float32) attentionGrad {
	view := newAttentionView(set, v.qkv, v.lse, v.op.Tokens, v.op.Heads, v.op.HeadDim, head)
	t, dim, width := view.room, view.dim, view.width
	dq := v.dqkv[head*dim:]
	return attentionGrad{
		attentionView: view, dq: dq, dkey: dq[width:], dvalue: dq[2*width:], dout: v.dout[head*dim:],
		qT: carve(&workspace, t*dim), doutT: carve(&workspace, t*dim),
		qRows: carve(&workspace, t*dim), doutRows: carve(&workspace, t*dim), kRows: carve(&workspace, t*dim),
		p: carve(&workspace, t*t), ds: carve(&workspace, t*t),
		delta: carve(&workspace, v.op.Tokens),
	}
}

// rows computes delta for each token of the head.
func (b *attentionGrad) rows(out []float32) {
	for i := range b.delta {
		b.delta[i] = float32(b.vector.Dot(out[i*b.width:][:b.dim], b.dout[i*b.width:]))
	}
}

// queries computes the contributions of the n queries at q0, over all keys that they attend to.
func (b *attentionGrad) queries(q0, n int) {
	b.vector.Transpose(b.qT, b.room, b.q[q0*b.stride:], b.stride, n, b.dim)
	b.vector.Scale(b.qT, b.qT, b.scale)
	b.vector.Transpose(b.doutT, b.room, b.dout[q0*b.width:], b.width, n, b.dim)
	pack(b.qRows, b.q[q0*b.stride:], b.stride, n, b.dim)
	pack(b.doutRows, b.dout[q0*b.width:], b.width, n, b.dim)
	for k0 := 0; k0 < q0; k0 += attentionTile {
		b.tile(q0, n, k0, attentionTile)
	}
	b.tile(q0, n, q0, n)
}

// tile adds the contribution of the queries at q0 to the gradients of the keys and values at
// k0, and the contribution of the keys to the gradient of the queries.
func (b *attentionGrad) tile(q0, queries, k0, keys int) {
	t := b.room
	diagonal, lower, upper := k0 == q0, vector.Full, vector.Full
	if diagonal {
		lower, upper = vector.Lower, vector.Upper
	}
	value := vector.Matrix{Data: b.value[k0*b.stride:], Row: b.stride, Col: 1}
	pack(b.kRows, b.key[k0*b.stride:], b.stride, keys, b.dim)
	scores(b.vector, b.p, t, packed(b.kRows, b.dim), b.qT, b.dim, keys, queries, diagonal)
	scores(b.vector, b.ds, t, value, b.doutT, b.dim, keys, queries, diagonal)
	for j := range keys {
		from := seenFrom(j, diagonal)
		b.vector.ExpGrad(b.p[j*t+from:j*t+queries], b.ds[j*t+from:], b.lse[q0+from:], b.delta[q0+from:], b.scale)
	}

	p, ds := vector.Matrix{Data: b.p, Row: t, Col: 1}, vector.Matrix{Data: b.ds, Row: t, Col: 1}
	dsT := vector.Matrix{Data: b.ds, Row: 1, Col: t}
	b.vector.MulAdd(b.dvalue[k0*b.stride:], b.stride, p, packed(b.doutRows, b.dim), keys, b.dim, queries, upper, !diagonal)
	b.vector.MulAdd(b.dkey[k0*b.stride:], b.stride, ds, packed(b.qRows, b.dim), keys, b.dim, queries, upper, !diagonal)
	b.vector.MulAdd(b.dq[q0*b.stride:], b.stride, dsT, packed(b.kRows, b.dim), queries, b.dim, keys, lower, k0 > 0)
}

package kernels

import (
	"math"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// attentionTile is the number of queries in a tile, and also the number of keys. Tiles begin at
// multiples of it, so that a row of the result depends on its position and on earlier tokens,
// never on the number of tokens that follow.
const attentionTile = 64

// diagonalStep is the number of keys that are scored together, from the same first query on, in a
// tile on the diagonal, where queries and keys have the same positions. Most scores of keys that
// follow their query are therefore never computed.
const diagonalStep = 16

// MaxHeadDim returns the target's limit for a Null. The host has no limit.
func (h *host) MaxHeadDim() int {
	if limit, ok := h.target.(HeadLimit); ok {
		return limit.MaxHeadDim()
	}
	return math.MaxInt
}

// AttentionWorkspace returns enough elements for every thread's attentionScratch.
func (h *host) AttentionWorkspace(tokens, heads, headDim int) (forward, backward int) {
	if h.target != nil {
		return h.target.AttentionWorkspace(tokens, heads, headDim)
	}
	forward, backward = attentionScratch(tokens, headDim)
	threads := h.crew.threads()
	return size(threads, forward), size(threads, backward)
}

// attentionScratch returns the number of elements that one head needs at a time, for the operands
// and scores of one tile.
func attentionScratch(tokens, headDim int) (forward, backward int) {
	t := tileOf(tokens)
	tile := size(t, headDim)
	forward = addSizes(size(2, tile), t*t+2*t)
	backward = addSizes(addSizes(size(5, tile), 2*t*t), tokens)
	return forward, backward
}

// tileOf returns the number of queries, and of keys, in a tile in the workspace. If there are
// fewer tokens than fit in a tile, it is the number of tokens, rounded up to a multiple of
// diagonalStep.
func tileOf(tokens int) int {
	tokens = min(attentionTile, tokens)
	return (tokens + diagonalStep - 1) / diagonalStep * diagonalStep
}

// addSizes adds sizes. On overflow it returns the largest int.
func addSizes(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// carve returns the first n elements of a workspace and removes them from it.
func carve(workspace *[]float32, n int) []float32 {
	part := (*workspace)[:n:n]
	*workspace = (*workspace)[n:]
	return part
}

// CausalAttention iterates over tiles of queries, and for each over the tiles of keys up to it
// with a running maximum and sum (online softmax, Milakov and Gimelshein 2018). Scores are
// stored transposed, keys × queries, so that the computations on scores run along independent
// columns.
func (h *host) CausalAttention(op CausalAttention) error {
	c := h.call("CausalAttention")
	need, _ := h.AttentionWorkspace(op.Tokens, op.Heads, op.HeadDim)
	c.dimensions("Tokens Heads HeadDim", op.Tokens, op.Heads, op.HeadDim)
	all := size(op.Tokens, size(op.Heads, op.HeadDim))
	t := attentionTask{
		qkv: c.floats("QKV", op.QKV, size(3, all)), out: c.floats("Out", op.Out, all), lse: c.floats("LSE", op.LSE, size(op.Heads, op.Tokens)),
		workspace: roomy[float32](&c, "Workspace", op.Workspace, need), op: op,
	}
	c.apart("Out", op.Out, op.QKV, op.LSE, op.Workspace)
	c.apart("LSE", op.LSE, op.QKV, op.Workspace)
	c.apart("Workspace", op.Workspace, op.QKV)
	if c.done() {
		return c.err
	}
	launch(h, &h.operations.attention, t, op.Heads)
	return nil
}

// attentionTask computes CausalAttention. Each part is a head.
type attentionTask struct {
	qkv, out, lse, workspace []float32
	op                       CausalAttention
}

func (t *attentionTask) part(head, _ int, w *worker) {
	scratch, _ := attentionScratch(t.op.Tokens, t.op.HeadDim)
	f := newAttentionHead(w.vector, t, head, t.workspace[w.index*scratch:])
	for q0 := 0; q0 < t.op.Tokens; q0 += attentionTile {
		f.queries(q0, min(attentionTile, t.op.Tokens-q0))
	}
}

// attentionView holds one head's share of the operands of either pass. Slices that extend to the
// end of a tensor begin at the head's first element. Rows of q, key and value are stride elements
// apart.
type attentionView struct {
	vector             vector.Set
	dim, width, stride int
	room               int // tileOf(tokens)
	scale              float32
	q, key, value, lse []float32
}

func newAttentionView(set vector.Set, qkv, lse []float32, tokens, heads, dim, head int) attentionView {
	width, q := heads*dim, qkv[head*dim:]
	return attentionView{
		vector: set, dim: dim, width: width, stride: 3 * width, room: tileOf(tokens), scale: float32(1 / math.Sqrt(float64(dim))),
		q: q, key: q[width:], value: q[2*width:], lse: lse[head*tokens:][:tokens],
	}
}

// attentionHead computes one head of the forward pass. Rows of out are width elements apart.
type attentionHead struct {
	attentionView
	out      []float32
	qT       []float32 // a tile of queries, transposed and scaled: HeadDim × room
	v        []float32 // a tile of values with contiguous rows: room × HeadDim
	s        []float32 // scores, then their exponentials: keys × queries
	max, sum []float32 // per query of the tile: the running maximum, and the sum of exponentials relative to it
}

func newAttentionHead(set vector.Set, v *attentionTask, head int, workspace []float32) attentionHead {
	view := newAttentionView(set, v.qkv, v.lse, v.op.Tokens, v.op.Heads, v.op.HeadDim, head)
	t, dim := view.room, view.dim
	return attentionHead{
		attentionView: view, out: v.out[head*dim:],
		qT: carve(&workspace, t*dim), v: carve(&workspace, t*dim), s: carve(&workspace, t*t),
		max: carve(&workspace, t), sum: carve(&workspace, t),
	}
}

// queries computes the outputs of the n queries at q0.
func (f *attentionHead) queries(q0, n int) {
	f.vector.Transpose(f.qT, f.room, f.q[q0*f.stride:], f.stride, n, f.dim)
	f.vector.Scale(f.qT, f.qT, f.scale)
	for i := range f.max {
		f.max[i] = lowestTop
	}
	clear(f.sum)
	for k0 := 0; k0 < q0; k0 += attentionTile {
		f.tile(q0, n, k0, attentionTile)
	}
	f.tile(q0, n, q0, n)
	for i := range n {
		row := f.out[(q0+i)*f.width:][:f.dim]
		f.vector.Scale(row, row, 1/f.sum[i])
		f.lse[q0+i] = float32(float64(f.max[i]) + math.Log(float64(f.sum[i])))
	}
}

// tile adds the contribution of the keys and values at k0. On the diagonal, query i attends to
// the first i+1 of them.
func (f *attentionHead) tile(q0, queries, k0, keys int) {
	diagonal, form := k0 == q0, vector.Full
	if diagonal {
		form = vector.Lower
	}
	scores(f.vector, f.s, f.room, vector.Matrix{Data: f.key[k0*f.stride:], Row: f.stride, Col: 1}, f.qT, f.dim, keys, queries, diagonal)
	f.softmax(q0, queries, k0, keys)
	p := vector.Matrix{Data: f.s, Row: 1, Col: f.room}
	pack(f.v, f.value[k0*f.stride:], f.stride, keys, f.dim)
	f.vector.MulAdd(f.out[q0*f.width:], f.width, p, packed(f.v, f.dim), queries, f.dim, keys, form, k0 > 0)
}

// pack copies rows of dim elements, stride apart, to contiguous memory: in place they would
// compete for a few sets of the first-level cache.
func pack(dst, src []float32, stride, rows, dim int) {
	for i := range rows {
		copy(dst[i*dim:][:dim], src[i*stride:])
	}
}

// packed returns the matrix that pack wrote.
func packed(x []float32, dim int) vector.Matrix { return vector.Matrix{Data: x, Row: dim, Col: 1} }

// scores writes the products of the rows of k and the columns of q to s (keys × queries), where q
// and s have t columns. On the diagonal, the scores of the keys that follow a query are
// undefined.
func scores(set vector.Set, s []float32, t int, k vector.Matrix, q []float32, dim, keys, queries int, diagonal bool) {
	if !diagonal {
		set.MulAdd(s, t, k, vector.Matrix{Data: q, Row: t, Col: 1}, keys, queries, dim, vector.Full, false)
		return
	}
	rows := k.Data
	for j := 0; j < keys; j += diagonalStep {
		k.Data = rows[j*k.Row:]
		set.MulAdd(s[j*t+j:], t, k, vector.Matrix{Data: q[j:], Row: t, Col: 1}, min(diagonalStep, keys-j), queries-j, dim, vector.Full, false)
	}
}

// seenFrom returns the first query of a tile that attends to key j.
func seenFrom(j int, diagonal bool) int {
	if diagonal {
		return j
	}
	return 0
}

// softmax replaces scores by exponentials relative to the running maximum, and rescales the
// earlier sums and outputs to the new maximum.
func (f *attentionHead) softmax(q0, queries, k0, keys int) {
	t := f.room
	var next, scale [attentionTile]float32
	copy(next[:], f.max)
	for j := range keys {
		from := seenFrom(j, k0 == q0)
		f.vector.Larger(next[from:queries], f.s[j*t+from:])
	}
	f.vector.Rescale(scale[:queries], f.max, next[:], f.sum)
	if k0 > 0 {
		for i := range queries {
			row := f.out[(q0+i)*f.width:][:f.dim]
			f.vector.Scale(row, row, scale[i])
		}
	}
	for j := range keys {
		from := seenFrom(j, k0 == q0)
		f.vector.ExpAdd(f.s[j*t+from:j*t+queries], f.max[from:], f.sum[from:])
	}
}

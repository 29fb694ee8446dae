package kernels

import "math"

// attentionTile is the number of queries and of keys of a tile. Tiles begin at
// multiples of it, so that a row of the result depends on its position and on
// what comes before, never on how many tokens follow.
const attentionTile = 64

// diagonalStep is the number of keys that share a first query on the tile where
// queries and keys are the same positions: scores of later keys are not computed.
const diagonalStep = 16

// AttentionWorkspace returns the elements that a head needs at a time: packed
// operands, one tile of scores (two backward), results of one tile of tokens.
func (h *Host) AttentionWorkspace(tokens, _, headDim int) (forward, backward int) {
	const t = attentionTile
	tile := size(t, headDim)
	forward = addSizes(size(3, tile), t*t+2*t)
	backward = addSizes(addSizes(size(7, tile), 2*t*t), tokens)
	return forward, backward
}

// addSizes adds sizes; the largest int stays the largest int.
func addSizes(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// carve cuts the first n elements off a workspace.
func carve(workspace *[]float32, n int) []float32 {
	part := (*workspace)[:n:n]
	*workspace = (*workspace)[n:]
	return part
}

// attentionViews are the opened buffers of CausalAttention, need the elements of
// its workspace.
type attentionViews struct{ qkv, out, lse, workspace []float32 }

func openAttention(c *call, op CausalAttention, need int) (v attentionViews) {
	c.dimension("Tokens", op.Tokens)
	c.dimension("Heads", op.Heads)
	c.dimension("HeadDim", op.HeadDim)
	all := size(op.Tokens, size(op.Heads, op.HeadDim))
	v.qkv = c.floats("QKV", op.QKV, size(3, all))
	v.out = c.floats("Out", op.Out, all)
	v.lse = c.floats("LSE", op.LSE, size(op.Heads, op.Tokens))
	v.workspace = c.roomy("Workspace", op.Workspace, need)
	c.apart("Out", op.Out, op.QKV, op.LSE, op.Workspace)
	c.apart("LSE", op.LSE, op.QKV, op.Workspace)
	c.apart("Workspace", op.Workspace, op.QKV)
	return v
}

// CausalAttention goes over tiles of queries, and for each over the tiles of keys
// up to it with a running maximum and sum (online softmax, Milakov and
// Gimelshein 2018). Scores lie transposed, keys × queries: the products with
// values then read whole rows, and the work on scores is on columns that do not
// wait for each other.
func (h *Host) CausalAttention(op CausalAttention) error {
	c := h.call("CausalAttention")
	need, _ := h.AttentionWorkspace(op.Tokens, op.Heads, op.HeadDim)
	v := openAttention(&c, op, need)
	if c.err != nil {
		return c.err
	}
	const t = attentionTile
	dim := op.HeadDim
	w := v.workspace
	f := attentionForward{
		dim: dim,
		q:   carve(&w, t*dim),
		k:   carve(&w, t*dim),
		out: carve(&w, t*dim),
		s:   carve(&w, t*t),
		max: carve(&w, t),
		sum: carve(&w, t),
	}
	width := op.Heads * dim
	stride := 3 * width
	scale := float32(1 / math.Sqrt(float64(dim)))
	for head := range op.Heads {
		q := v.qkv[head*dim:]
		key, value := q[width:], q[2*width:]
		for q0 := 0; q0 < op.Tokens; q0 += t {
			queries := min(t, op.Tokens-q0)
			transpose(f.q, t, q[q0*stride:], stride, queries, dim)
			scaleBy(f.q, scale)
			clear(f.out)
			clear(f.sum)
			for i := range f.max {
				f.max[i] = float32(math.Inf(-1))
			}
			for k0 := 0; k0 < q0; k0 += t {
				f.tile(key[k0*stride:], value[k0*stride:], stride, t, queries, false)
			}
			f.tile(key[q0*stride:], value[q0*stride:], stride, queries, queries, true)
			lse := v.lse[head*op.Tokens+q0:][:queries]
			for i := range lse {
				lse[i] = float32(float64(f.max[i]) + math.Log(float64(f.sum[i])))
				row := v.out[(q0+i)*width+head*dim:][:dim]
				for d, o := range f.out[i*dim:][:dim] {
					row[d] = o / f.sum[i]
				}
			}
		}
	}
	return nil
}

// attentionForward is the state of one tile of queries of one head.
type attentionForward struct {
	dim      int
	q, k     []float32 // transposed: HeadDim × tile; q with the scale in it
	out      []float32 // tile × HeadDim, not yet divided by sum
	s        []float32 // scores, then their exponentials: keys × queries
	max, sum []float32 // per query
}

// tile takes the given keys and values into account. Rows of key and value are
// stride apart. On the diagonal query i sees keys 0..i of the tile.
func (f *attentionForward) tile(key, value []float32, stride, keys, queries int, diagonal bool) {
	const t = attentionTile
	transpose(f.k, t, key, stride, keys, f.dim)
	scores(f.s, f.k, f.q, f.dim, keys, queries, diagonal)
	f.softmax(keys, queries, diagonal)
	for j := range keys {
		first := 0
		if diagonal {
			first = j
		}
		rankOne(queries-first, f.dim, f.s[j*t+first:], 1, value[j*stride:], f.out[first*f.dim:], f.dim)
	}
}

// scores writes the products of keys and queries to s (keys × queries). On the
// diagonal those of a query and a later key are undefined.
func scores(s, k, q []float32, dim, keys, queries int, diagonal bool) {
	const t = attentionTile
	clear(s[:keys*t])
	if !diagonal {
		for d := range dim {
			rankOne(keys, queries, k[d*t:], 1, q[d*t:], s, t)
		}
		return
	}
	for j := 0; j < keys; j += diagonalStep {
		for d := range dim {
			rankOne(min(diagonalStep, keys-j), queries-j, k[d*t+j:], 1, q[d*t+j:], s[j*t+j:], t)
		}
	}
}

// softmax turns scores into exponentials relative to the maximum so far, and
// scales what was summed relative to the maximum before.
func (f *attentionForward) softmax(keys, queries int, diagonal bool) {
	const t = attentionTile
	var next [t]float32
	copy(next[:], f.max)
	for j := range keys {
		first := 0
		if diagonal {
			first = j
		}
		row, top := f.s[j*t+first:j*t+queries], next[first:queries]
		for i, s := range row {
			if s > top[i] {
				top[i] = s
			}
		}
	}
	for i := range queries {
		scale := exp(f.max[i] - next[i])
		f.sum[i] *= scale
		scaleBy(f.out[i*f.dim:][:f.dim], scale)
		f.max[i] = next[i]
	}
	for j := range keys {
		first := 0
		if diagonal {
			first = j
		}
		row, top, total := f.s[j*t+first:j*t+queries], next[first:queries], f.sum[first:queries]
		for i, s := range row {
			p := exp(s - top[i])
			row[i] = p
			total[i] += p
		}
	}
}

// scaleBy multiplies x by a.
func scaleBy(x []float32, a float32) {
	for i := range x {
		x[i] *= a
	}
}

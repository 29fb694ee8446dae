package kernels

import "math"

// attentionGrads are the opened buffers of CausalAttentionBackward.
type attentionGrads struct{ dout, qkv, out, lse, dqkv, workspace []float32 }

func openAttentionBackward(c *call, op CausalAttentionBackward, need int) (v attentionGrads) {
	c.dimension("Tokens", op.Tokens)
	c.dimension("Heads", op.Heads)
	c.dimension("HeadDim", op.HeadDim)
	all := size(op.Tokens, size(op.Heads, op.HeadDim))
	v.dout = c.floats("DOut", op.DOut, all)
	v.qkv = c.floats("QKV", op.QKV, size(3, all))
	v.out = c.floats("Out", op.Out, all)
	v.lse = c.floats("LSE", op.LSE, size(op.Heads, op.Tokens))
	v.dqkv = c.floats("DQKV", op.DQKV, size(3, all))
	v.workspace = c.roomy("Workspace", op.Workspace, need)
	c.apart("DQKV", op.DQKV, op.DOut, op.QKV, op.Out, op.LSE, op.Workspace)
	c.apart("Workspace", op.Workspace, op.DOut, op.QKV, op.Out, op.LSE)
	return v
}

// CausalAttentionBackward goes over tiles of keys, and for each over the tiles of
// queries from it on. With the weights p = exp(score - LSE), recomputed tile by
// tile, and delta = Σ dout·out of a query (Dao et al. 2022):
//
//	dv = Σ p·dout    ds = p·(dout·v - delta)    dq = scale·Σ ds·k    dk = scale·Σ ds·q
func (h *Host) CausalAttentionBackward(op CausalAttentionBackward) error {
	c := h.call("CausalAttentionBackward")
	_, need := h.AttentionWorkspace(op.Tokens, op.Heads, op.HeadDim)
	v := openAttentionBackward(&c, op, need)
	if c.err != nil {
		return c.err
	}
	const t = attentionTile
	dim, width := op.HeadDim, op.Heads*op.HeadDim
	w := v.workspace
	b := attentionBackward{
		dim: dim, width: width, stride: 3 * width,
		scale: float32(1 / math.Sqrt(float64(dim))),
		q:     carve(&w, t*dim), k: carve(&w, t*dim),
		v: carve(&w, t*dim), dout: carve(&w, t*dim),
		dq: carve(&w, t*dim), dk: carve(&w, t*dim), dv: carve(&w, t*dim),
		p: carve(&w, t*t), ds: carve(&w, t*t),
		delta: carve(&w, op.Tokens),
	}
	for head := range op.Heads {
		b.qkv, b.dqkv = v.qkv[head*dim:], v.dqkv[head*dim:]
		b.grad, b.lse = v.dout[head*dim:], v.lse[head*op.Tokens:][:op.Tokens]
		b.rows(v.out[head*dim:])
		for k0 := 0; k0 < op.Tokens; k0 += t {
			keys := min(t, op.Tokens-k0)
			b.begin(k0, keys)
			for q0 := k0; q0 < op.Tokens; q0 += t {
				b.tile(k0, keys, q0, min(t, op.Tokens-q0))
			}
			b.end(k0, keys)
		}
	}
	return nil
}

// attentionBackward is the state of one head and one tile of keys. Slices that
// end in the whole tensor begin at the head's first element.
type attentionBackward struct {
	dim, width, stride int
	scale              float32
	qkv, grad, lse     []float32 // of the head; rows of qkv are stride apart, of grad width
	dqkv               []float32
	q, k, v, dout      []float32 // transposed tiles: HeadDim × tile; q with the scale in it
	dq, dk, dv         []float32 // tile × HeadDim
	p, ds              []float32 // keys × queries
	delta              []float32 // per token
}

// rows computes delta for each token of the head.
func (b *attentionBackward) rows(out []float32) {
	for i := range b.delta {
		o := out[i*b.width:][:b.dim]
		g := b.grad[i*b.width:][:len(o)]
		var d float32
		for j, v := range o {
			d += v * g[j]
		}
		b.delta[i] = d
	}
}

// begin turns to the tile of keys at k0.
func (b *attentionBackward) begin(k0, keys int) {
	transpose(b.k, attentionTile, b.qkv[k0*b.stride+b.width:], b.stride, keys, b.dim)
	transpose(b.v, attentionTile, b.qkv[k0*b.stride+2*b.width:], b.stride, keys, b.dim)
	clear(b.dk)
	clear(b.dv)
}

// tile adds what the queries at q0 contribute to the keys and values at k0, and
// the keys to the gradient of the queries.
func (b *attentionBackward) tile(k0, keys, q0, queries int) {
	const t = attentionTile
	diagonal := q0 == k0
	transpose(b.q, t, b.qkv[q0*b.stride:], b.stride, queries, b.dim)
	scaleBy(b.q, b.scale)
	transpose(b.dout, t, b.grad[q0*b.width:], b.width, queries, b.dim)
	scores(b.p, b.k, b.q, b.dim, keys, queries, diagonal)
	scores(b.ds, b.v, b.dout, b.dim, keys, queries, diagonal)
	b.weights(keys, queries, q0, diagonal)

	for i := range queries {
		seen := keys
		if diagonal {
			seen = i + 1
		}
		rankOne(seen, b.dim, b.p[i:], t, b.grad[(q0+i)*b.width:], b.dv, b.dim)
		rankOne(seen, b.dim, b.ds[i:], t, b.qkv[(q0+i)*b.stride:], b.dk, b.dim)
	}

	clear(b.dq)
	for j := range keys {
		first := 0
		if diagonal {
			first = j
		}
		rankOne(queries-first, b.dim, b.ds[j*t+first:], 1, b.qkv[(k0+j)*b.stride+b.width:], b.dq[first*b.dim:], b.dim)
	}
	for i := range queries {
		row := b.dqkv[(q0+i)*b.stride:][:b.dim]
		for d, g := range b.dq[i*b.dim:][:b.dim] {
			if k0 == 0 {
				row[d] = b.scale * g
			} else {
				row[d] += b.scale * g
			}
		}
	}
}

// weights turns scores in p into probabilities, and products of gradients and
// values in ds into the gradient of the scores without the scale.
func (b *attentionBackward) weights(keys, queries, q0 int, diagonal bool) {
	const t = attentionTile
	for j := range keys {
		first := 0
		if diagonal {
			first = j
		}
		p, ds := b.p[j*t+first:j*t+queries], b.ds[j*t+first:j*t+queries]
		lse, delta := b.lse[q0+first:q0+queries], b.delta[q0+first:q0+queries]
		lse, delta, ds = lse[:len(p)], delta[:len(p)], ds[:len(p)]
		for i, s := range p {
			w := exp(s - lse[i])
			p[i] = w
			ds[i] = w * (ds[i] - delta[i])
		}
	}
}

// end writes the gradients of the keys and values at k0.
func (b *attentionBackward) end(k0, keys int) {
	for j := range keys {
		dk := b.dqkv[(k0+j)*b.stride+b.width:][:b.dim]
		dv := b.dqkv[(k0+j)*b.stride+2*b.width:][:b.dim]
		copy(dv, b.dv[j*b.dim:])
		for d, g := range b.dk[j*b.dim:][:b.dim] {
			dk[d] = b.scale * g
		}
	}
}

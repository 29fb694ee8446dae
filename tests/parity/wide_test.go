package parity_test

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/stages/transformer"
	reference "github.com/weir-ml/weir/tests/parity"
)

// wide is the model in float64, with all sequences of a step as one batch: one sum over all
// tokens, no microbatches, no kernels. It is written from the formulas in the documentation of
// stages/transformer.
type wide struct {
	cfg    transformer.Config
	weight map[string][]float64
	grad   map[string][]gradient

	loss, total float64 // Σ weight·loss and Σ weight over all tokens
}

// gradient is a sum of terms, one for each token that contributes to the element: the sum, the
// sum of the terms' magnitudes, and their number.
type gradient struct {
	sum, magnitude float64
	terms          int
}

func (g *gradient) add(term float64) {
	g.sum += term
	g.magnitude += math.Abs(term)
	g.terms++
}

func newWide(r *rig, cfg transformer.Config) *wide {
	w := &wide{cfg: cfg, weight: map[string][]float64{}}
	for _, p := range r.model.Parameters() {
		for _, v := range read(r.t, r.dev, p.Weight) {
			w.weight[p.Name] = append(w.weight[p.Name], float64(v))
		}
	}
	return w
}

// batch computes the loss and the gradients of all sequences together.
func (w *wide) batch(all ...reference.Sequence) {
	w.loss, w.total = 0, 0
	w.grad = map[string][]gradient{}
	for name, values := range w.weight {
		w.grad[name] = make([]gradient, len(values))
	}
	for _, s := range all {
		w.sequence(s)
	}
}

func (w *wide) sequence(s reference.Sequence) {
	n, width := len(s.Tokens), w.cfg.Width
	table, positions := w.weight["embedding.weight"], w.weight["positions.weight"]
	x := newRows(n, width)
	for t, id := range s.Tokens {
		for c := range x[t] {
			x[t][c] = table[int(id)*width+c] + positions[t*width+c]
		}
	}
	var backs []func(rows) rows
	for i := range w.cfg.Layers {
		var back func(rows) rows
		x, back = w.block(fmt.Sprintf("block%d", i), x)
		backs = append(backs, back)
	}
	y, back := w.norm("norm", x)
	d := back(w.head(s, y))
	for i := len(backs) - 1; i >= 0; i-- {
		d = backs[i](d)
	}
	for t, id := range s.Tokens {
		for c, g := range d[t] {
			w.grad["embedding.weight"][int(id)*width+c].add(g)
			w.grad["positions.weight"][t*width+c].add(g)
		}
	}
}

// rows is a matrix, by row.
type rows [][]float64

func newRows(n, cols int) rows {
	r := make(rows, n)
	for i := range r {
		r[i] = make([]float64, cols)
	}
	return r
}

// sum adds b to a.
func sum(a, b rows) {
	for t := range a {
		for c := range a[t] {
			a[t][c] += b[t][c]
		}
	}
}

// head adds the losses and returns the gradient of its input.
func (w *wide) head(s reference.Sequence, x rows) rows {
	width, table := w.cfg.Width, w.weight["embedding.weight"]
	dx := newRows(len(x), width)
	for t := range x {
		logits := make([]float64, w.cfg.Vocabulary)
		total := 0.0
		for v := range logits {
			for c := range width {
				logits[v] += x[t][c] * table[v*width+c]
			}
			total += math.Exp(logits[v])
		}
		weight := float64(s.Weights[t])
		w.loss += weight * (math.Log(total) - logits[s.Labels[t]])
		w.total += weight
		for v := range logits {
			g := weight * math.Exp(logits[v]) / total
			if int32(v) == s.Labels[t] {
				g -= weight
			}
			for c := range width {
				w.grad["embedding.weight"][v*width+c].add(g * x[t][c])
				dx[t][c] += g * table[v*width+c]
			}
		}
	}
	return dx
}

// block returns the block's output and its backward.
func (w *wide) block(name string, x rows) (rows, func(rows) rows) {
	width := w.cfg.Width
	a, norm1 := w.norm(name+".norm1", x)
	qkv, qkvBack := w.linear(name+".attention.qkv", a, 3*width)
	o, attend := w.attention(qkv)
	r, output := w.linear(name+".attention.output", o, width)
	sum(r, x)
	b, norm2 := w.norm(name+".norm2", r)
	up, upBack := w.linear(name+".mlp.up", b, 4*width)
	wide, slope := newRows(len(x), 4*width), newRows(len(x), 4*width)
	for t := range up {
		for c, v := range up[t] {
			wide[t][c], slope[t][c] = gelu(v)
		}
	}
	y, down := w.linear(name+".mlp.down", wide, width)
	sum(y, r)
	return y, func(dy rows) rows {
		d := down(dy)
		for t := range d {
			for c := range d[t] {
				d[t][c] *= slope[t][c]
			}
		}
		dr := norm2(upBack(d))
		sum(dr, dy)
		dx := norm1(qkvBack(attend(output(dr))))
		sum(dx, dr)
		return dx
	}
}

// gelu returns the tanh form and its derivative.
func gelu(x float64) (y, slope float64) {
	c := math.Sqrt(2 / math.Pi)
	t := math.Tanh(c * (x + 0.044715*x*x*x))
	return x / 2 * (1 + t), (1+t)/2 + x/2*(1-t*t)*c*(1+3*0.044715*x*x)
}

func (w *wide) linear(name string, x rows, out int) (rows, func(rows) rows) {
	weight, bias := w.weight[name+".weight"], w.weight[name+".bias"]
	in := len(x[0])
	y := newRows(len(x), out)
	for t := range y {
		for j := range y[t] {
			y[t][j] = bias[j]
			for i, v := range x[t] {
				y[t][j] += v * weight[i*out+j]
			}
		}
	}
	return y, func(dy rows) rows {
		dx := newRows(len(x), in)
		for t := range dy {
			for j, g := range dy[t] {
				w.grad[name+".bias"][j].add(g)
				for i := range in {
					w.grad[name+".weight"][i*out+j].add(x[t][i] * g)
					dx[t][i] += g * weight[i*out+j]
				}
			}
		}
		return dx
	}
}

func (w *wide) norm(name string, x rows) (rows, func(rows) rows) {
	gamma, beta := w.weight[name+".weight"], w.weight[name+".bias"]
	n := float64(len(gamma))
	y, normal := newRows(len(x), len(gamma)), newRows(len(x), len(gamma))
	rstd := make([]float64, len(x))
	for t := range x {
		mean, variance := 0.0, 0.0
		for _, v := range x[t] {
			mean += v / n
		}
		for _, v := range x[t] {
			variance += (v - mean) * (v - mean) / n
		}
		rstd[t] = 1 / math.Sqrt(variance+1e-5)
		for c, v := range x[t] {
			normal[t][c] = (v - mean) * rstd[t]
			y[t][c] = normal[t][c]*gamma[c] + beta[c]
		}
	}
	return y, func(dy rows) rows {
		dx := newRows(len(x), len(gamma))
		for t := range dy {
			meanG, meanGN := 0.0, 0.0
			for c, d := range dy[t] {
				w.grad[name+".weight"][c].add(d * normal[t][c])
				w.grad[name+".bias"][c].add(d)
				meanG += d * gamma[c] / n
				meanGN += d * gamma[c] * normal[t][c] / n
			}
			for c, d := range dy[t] {
				dx[t][c] = rstd[t] * (d*gamma[c] - meanG - normal[t][c]*meanGN)
			}
		}
		return dx
	}
}

// attention computes all weights of a head at once, as in the definition.
func (w *wide) attention(qkv rows) (rows, func(rows) rows) {
	n, width, heads := len(qkv), w.cfg.Width, w.cfg.Heads
	dim := width / heads
	scale := 1 / math.Sqrt(float64(dim))
	out := newRows(n, width)
	weights := make([]rows, heads)
	for h := range heads {
		q, k, v := h*dim, width+h*dim, 2*width+h*dim
		weights[h] = newRows(n, n)
		for i := range n {
			p, total := weights[h][i][:i+1], 0.0
			for j := range p {
				score := 0.0
				for d := range dim {
					score += qkv[i][q+d] * qkv[j][k+d]
				}
				p[j] = math.Exp(score * scale)
				total += p[j]
			}
			for j := range p {
				p[j] /= total
				for d := range dim {
					out[i][q+d] += p[j] * qkv[j][v+d]
				}
			}
		}
	}
	return out, func(dout rows) rows {
		dqkv := newRows(n, 3*width)
		for h := range heads {
			q, k, v := h*dim, width+h*dim, 2*width+h*dim
			for i := range n {
				p, dp, mean := weights[h][i][:i+1], make([]float64, i+1), 0.0
				for j := range p {
					for d := range dim {
						dp[j] += dout[i][q+d] * qkv[j][v+d]
						dqkv[j][v+d] += p[j] * dout[i][q+d]
					}
					mean += p[j] * dp[j]
				}
				for j := range p {
					ds := p[j] * (dp[j] - mean) * scale
					for d := range dim {
						dqkv[i][q+d] += ds * qkv[j][k+d]
						dqkv[j][k+d] += ds * qkv[i][q+d]
					}
				}
			}
		}
		return dqkv
	}
}

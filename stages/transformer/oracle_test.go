package transformer_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages/transformer"
)

// oracle is the model in float64, written as plainly as possible.
type oracle struct {
	cfg     transformer.Config
	weights map[string][]float64
	// mask returns the factors of a dropout in step firstStep.
	mask func(microbatch int, name string, n int) []float64
}

func newOracle(t *testing.T, dev kernels.Compute, m *transformer.Model, cfg transformer.Config) *oracle {
	o := &oracle{cfg: cfg, weights: map[string][]float64{}}
	for _, p := range m.Parameters() {
		var w []float64
		for _, v := range read(t, dev, p.Weight) {
			w = append(w, float64(v))
		}
		o.weights[p.Name] = w
	}
	masks := map[string][]float64{}
	o.mask = func(microbatch int, name string, n int) []float64 {
		id := fmt.Sprint(microbatch, name)
		if masks[id] == nil {
			masks[id] = dropoutMask(t, dev, cfg.Dropout, microbatch, name, n)
		}
		return masks[id]
	}
	return o
}

// dropoutMask returns the factors of a dropout in step firstStep.
func dropoutMask(t *testing.T, dev kernels.Compute, p float32, microbatch int, name string, n int) []float64 {
	ones, out := make([]float32, n), make([]float64, n)
	for i := range ones {
		ones[i], out[i] = 1, 1
	}
	if p == 0 {
		return out
	}
	b, err := dev.Alloc(memory.Workspace, kernels.Float32, n)
	require.NoError(t, err)
	require.NoError(t, dev.WriteFloat32(b, ones))
	require.NoError(t, dev.Dropout(b, b, p, kernels.Key{Seed: runnerSeed, Step: firstStep, Microbatch: int64(microbatch), Op: kernels.OpKey(name)}))
	for i, v := range read(t, dev, b) {
		out[i] = float64(v)
	}
	_, err = dev.Release(b)
	require.NoError(t, err)
	return out
}

func (o *oracle) norm(x []float64, name string) []float64 {
	w, gain, bias := o.cfg.Width, o.weights[name+".weight"], o.weights[name+".bias"]
	y := make([]float64, len(x))
	for row := 0; row < len(x); row += w {
		var mean, variance float64
		for _, v := range x[row : row+w] {
			mean += v / float64(w)
		}
		for _, v := range x[row : row+w] {
			variance += (v - mean) * (v - mean) / float64(w)
		}
		for i := range w {
			y[row+i] = (x[row+i]-mean)/math.Sqrt(variance+1e-5)*gain[i] + bias[i]
		}
	}
	return y
}

func (o *oracle) linear(x []float64, name string, in, out int) []float64 {
	weight, bias := o.weights[name+".weight"], o.weights[name+".bias"]
	y := make([]float64, len(x)/in*out)
	for row := range len(x) / in {
		for j := range out {
			sum := bias[j]
			for i := range in {
				sum += x[row*in+i] * weight[i*out+j]
			}
			y[row*out+j] = sum
		}
	}
	return y
}

func (o *oracle) attention(qkv []float64) []float64 {
	w, dim := o.cfg.Width, o.cfg.Width/o.cfg.Heads
	tokens := len(qkv) / (3 * w)
	out := make([]float64, tokens*w)
	for head := range o.cfg.Heads {
		for i := range tokens {
			scores := make([]float64, i+1)
			var total float64
			for j := range scores {
				for d := range dim {
					scores[j] += qkv[i*3*w+head*dim+d] * qkv[j*3*w+w+head*dim+d]
				}
				scores[j] = math.Exp(scores[j] / math.Sqrt(float64(dim)))
				total += scores[j]
			}
			for j := range scores {
				for d := range dim {
					out[i*w+head*dim+d] += scores[j] / total * qkv[j*3*w+2*w+head*dim+d]
				}
			}
		}
	}
	return out
}

// addDropped adds y, with elements dropped, to x.
func (o *oracle) addDropped(x, y []float64, microbatch int, name string) {
	mask := o.mask(microbatch, name, len(y))
	for i := range y {
		x[i] += y[i] * mask[i]
	}
}

// logits returns the logits, tokens×vocabulary.
func (o *oracle) logits(microbatch int, q *sequence) []float64 {
	w, c := o.cfg.Width, o.cfg
	embedded := make([]float64, len(q.tokens)*w)
	for i, token := range q.tokens {
		for d := range w {
			embedded[i*w+d] = o.weights["embedding.weight"][int(token)*w+d] + o.weights["positions.weight"][i*w+d]
		}
	}
	x := make([]float64, len(embedded))
	o.addDropped(x, embedded, microbatch, "embedding.dropout")
	for l := range c.Layers {
		name := fmt.Sprintf("block%d", l)
		a := o.attention(o.linear(o.norm(x, name+".norm1"), name+".attention.qkv", w, 3*w))
		o.addDropped(x, o.linear(a, name+".attention.output", w, w), microbatch, name+".attention.dropout")
		up := o.linear(o.norm(x, name+".norm2"), name+".mlp.up", w, 4*w)
		for i, v := range up {
			up[i] = 0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
		}
		o.addDropped(x, o.linear(up, name+".mlp.down", 4*w, w), microbatch, name+".mlp.dropout")
	}
	x = o.norm(x, "norm")
	table := o.weights["embedding.weight"]
	if c.Untied {
		table = o.weights["head.weight"]
	}
	out := make([]float64, len(q.tokens)*c.Vocabulary)
	for i := range q.tokens {
		for v := range c.Vocabulary {
			for d := range w {
				out[i*c.Vocabulary+v] += x[i*w+d] * table[v*w+d]
			}
		}
	}
	return out
}

// loss returns the sum over all tokens and the sum of the weights.
func (o *oracle) loss(batch []sequence) (sum, weight float64) {
	for m := range batch {
		q := &batch[m]
		logits := o.logits(m, q)
		for i, label := range q.labels {
			row := logits[i*o.cfg.Vocabulary : (i+1)*o.cfg.Vocabulary]
			var total float64
			for _, v := range row {
				total += math.Exp(v)
			}
			sum += float64(q.weights[i]) * (math.Log(total) - row[label])
			weight += float64(q.weights[i])
		}
	}
	return sum, weight
}

package parity

import (
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// Config is the configuration of the model. Seed is the seed of the initial weights.
type Config struct {
	Vocabulary, Width, Layers, Heads, Context int
	Dropout                                   float32
	Untied                                    bool
	Seed                                      uint64
}

// Parameter is a parameter: weight, gradient and moments.
type Parameter struct {
	Name               string
	Weight, Grad, M, V kernels.Buffer
	decay              bool
}

// Model holds the parameters by name and in order.
type Model struct {
	Parameters []*Parameter

	cfg      Config
	dev      kernels.Compute
	byName   map[string]*Parameter
	headGrad kernels.Buffer // the accumulator of the table's use by the head
	updates  int64
}

// New makes the model. Its buffers are released with the device.
func New(dev kernels.Compute, cfg Config) (*Model, error) {
	m := &Model{cfg: cfg, dev: dev, byName: map[string]*Parameter{}}
	w := cfg.Width
	projection := 0.02 / math.Sqrt(2*float64(cfg.Layers))
	var err error
	add := func(name string, n int, deviation float64) {
		if err == nil {
			err = m.parameter(name, n, deviation)
		}
	}
	norm := func(name string) {
		add(name+".weight", w, ones)
		add(name+".bias", w, 0)
	}
	linear := func(name string, in, out int, deviation float64) {
		add(name+".weight", in*out, deviation)
		add(name+".bias", out, 0)
	}
	add("embedding.weight", cfg.Vocabulary*w, 0.02)
	add("positions.weight", cfg.Context*w, 0.02)
	for i := range cfg.Layers {
		block := fmt.Sprintf("block%d", i)
		norm(block + ".norm1")
		linear(block+".attention.qkv", w, 3*w, 0.02)
		linear(block+".attention.output", w, w, projection)
		norm(block + ".norm2")
		linear(block+".mlp.up", w, 4*w, 0.02)
		linear(block+".mlp.down", 4*w, w, projection)
	}
	norm("norm")
	if cfg.Untied {
		add("head.weight", cfg.Vocabulary*w, 0.02)
	}
	if err != nil {
		return nil, err
	}
	if m.headGrad, err = dev.Alloc(memory.Resident, kernels.Float32, cfg.Vocabulary*w); err != nil {
		return nil, err
	}
	return m, nil
}

// ones stands for the deviation of a parameter whose elements start at 1.
const ones = -1

// parameter adds a parameter of n elements: normal draws keyed by its name, zeros if the
// deviation is 0, or 1 everywhere if it is ones. Drawn parameters decay.
func (m *Model) parameter(name string, n int, deviation float64) error {
	p := &Parameter{Name: name, decay: deviation > 0}
	for _, b := range []*kernels.Buffer{&p.Weight, &p.Grad, &p.M, &p.V} {
		var err error
		if *b, err = m.dev.Alloc(memory.Resident, kernels.Float32, n); err != nil {
			return err
		}
		if err := m.dev.Zero(*b); err != nil {
			return err
		}
	}
	m.Parameters, m.byName[name] = append(m.Parameters, p), p
	switch {
	case deviation == ones:
		values := make([]float32, n)
		for i := range values {
			values[i] = 1
		}
		return m.dev.WriteFloat32(p.Weight, values)
	case deviation > 0:
		return m.dev.Normal(p.Weight, float32(deviation), kernels.Key{Seed: m.cfg.Seed, Op: kernels.OpKey(name)})
	}
	return nil
}

func (m *Model) weight(name string) kernels.Buffer { return m.byName[name].Weight }
func (m *Model) grad(name string) kernels.Buffer   { return m.byName[name].Grad }

// block holds the tensors of one block's forward for one microbatch that its backward needs.
type block struct {
	name               string
	norm1, norm2       normed
	qkv, attended, lse kernels.Buffer
	up, wide           kernels.Buffer
	y                  kernels.Buffer
}

func (b *block) forward(t *pass, name string, x kernels.Buffer) {
	width, heads := t.cfg.Width, t.cfg.Heads
	b.name = name
	b.norm1 = t.norm(x, name+".norm1")
	b.qkv = t.linear(b.norm1.y, name+".attention.qkv", width, 3*width)
	b.attended, b.lse = t.floats(t.tokens*width), t.floats(heads*t.tokens)
	need, _ := t.dev.AttentionWorkspace(t.tokens, heads, width/heads)
	scratch := t.floats(need)
	t.check(t.dev.CausalAttention(kernels.CausalAttention{
		QKV: b.qkv, Out: b.attended, LSE: b.lse, Workspace: scratch,
		Tokens: t.tokens, Heads: heads, HeadDim: width / heads,
	}))
	r := t.linear(b.attended, name+".attention.output", width, width)
	r = t.sum(t.dropout(r, name+".attention.dropout"), x)

	b.norm2 = t.norm(r, name+".norm2")
	b.up = t.linear(b.norm2.y, name+".mlp.up", width, 4*width)
	b.wide = t.floats(t.tokens * 4 * width)
	t.check(t.dev.GELU(b.wide, b.up))
	y := t.linear(b.wide, name+".mlp.down", 4*width, width)
	b.y = t.sum(t.dropout(y, name+".mlp.dropout"), r)
}

// backward adds to the gradients of the block's parameters and returns that of its input.
func (b *block) backward(t *pass, dy kernels.Buffer) kernels.Buffer {
	width, heads := t.cfg.Width, t.cfg.Heads
	d := t.linearBackward(t.dropout(dy, b.name+".mlp.dropout"), b.wide, b.name+".mlp.down", 4*width, width)
	dup := t.floats(t.tokens * 4 * width)
	t.check(t.dev.GELUBackward(dup, d, b.up))
	d = t.linearBackward(dup, b.norm2.y, b.name+".mlp.up", width, 4*width)
	dr := t.sum(t.normBackward(d, b.norm2, b.name+".norm2"), dy)

	d = t.linearBackward(t.dropout(dr, b.name+".attention.dropout"), b.attended, b.name+".attention.output", width, width)
	dqkv := t.floats(t.tokens * 3 * width)
	_, need := t.dev.AttentionWorkspace(t.tokens, heads, width/heads)
	scratch := t.floats(need)
	t.check(t.dev.CausalAttentionBackward(kernels.CausalAttentionBackward{
		DOut: d, QKV: b.qkv, Out: b.attended, LSE: b.lse, DQKV: dqkv, Workspace: scratch,
		Tokens: t.tokens, Heads: heads, HeadDim: width / heads,
	}))
	d = t.linearBackward(dqkv, b.norm1.y, b.name+".attention.qkv", width, 3*width)
	return t.sum(t.normBackward(d, b.norm1, b.name+".norm1"), dr)
}

// pass is the computation for one microbatch. It owns every buffer until the microbatch is
// done.
type pass struct {
	*Model
	step       int64
	microbatch int
	seed       uint64
	tokens     int
	buffers    []kernels.Buffer
	err        error
}

func (t *pass) floats(n int) kernels.Buffer { return t.alloc(kernels.Float32, n) }

func (t *pass) alloc(dtype kernels.DType, n int) kernels.Buffer {
	if t.err != nil || n == 0 {
		return kernels.Buffer{}
	}
	var b kernels.Buffer
	if b, t.err = t.dev.Alloc(memory.Workspace, dtype, n); t.err == nil {
		t.buffers = append(t.buffers, b)
	}
	return b
}

func (t *pass) ints(values []int32) kernels.Buffer {
	b := t.alloc(kernels.Int32, len(values))
	t.check(t.dev.WriteInt32(b, values))
	return b
}

// check keeps the first error. The operations after it fail too, because they have no buffers.
func (t *pass) check(err error) {
	if t.err == nil {
		t.err = err
	}
}

// free releases the buffers and returns the first error of the pass.
func (t *pass) free() error {
	for _, b := range t.buffers {
		_, err := t.dev.Release(b)
		t.check(err)
	}
	return t.err
}

// later reports whether gradients already contain contributions.
func (t *pass) later() bool { return t.microbatch > 0 }

// linear returns x·weight + bias.
func (t *pass) linear(x kernels.Buffer, name string, in, out int) kernels.Buffer {
	y := t.floats(t.tokens * out)
	t.check(t.dev.MatMul(kernels.MatMul{A: x, B: t.weight(name + ".weight"), C: y, M: t.tokens, N: out, K: in}))
	t.check(t.dev.AddRow(y, t.weight(name+".bias"), t.tokens, out))
	return y
}

// linearBackward adds to the gradients of the layer's parameters and returns that of x.
func (t *pass) linearBackward(dy, x kernels.Buffer, name string, in, out int) kernels.Buffer {
	t.check(t.dev.MatMul(kernels.MatMul{
		A: x, B: dy, C: t.grad(name + ".weight"), M: in, N: out, K: t.tokens, TransA: true, Accumulate: t.later(),
	}))
	t.check(t.dev.SumRows(t.grad(name+".bias"), dy, t.tokens, out, t.later()))
	dx := t.floats(t.tokens * in)
	t.check(t.dev.MatMul(kernels.MatMul{A: dy, B: t.weight(name + ".weight"), C: dx, M: t.tokens, N: in, K: out, TransB: true}))
	return dx
}

// normed is the result of a layer norm with the values that its backward needs.
type normed struct{ x, y, mean, rstd kernels.Buffer }

func (t *pass) norm(x kernels.Buffer, name string) normed {
	n := normed{x, t.floats(t.tokens * t.cfg.Width), t.floats(t.tokens), t.floats(t.tokens)}
	t.check(t.dev.LayerNorm(kernels.LayerNorm{
		X: x, Gamma: t.weight(name + ".weight"), Beta: t.weight(name + ".bias"),
		Y: n.y, Mean: n.mean, RStd: n.rstd, Rows: t.tokens, Cols: t.cfg.Width,
	}))
	return n
}

func (t *pass) normBackward(dy kernels.Buffer, n normed, name string) kernels.Buffer {
	dx := t.floats(t.tokens * t.cfg.Width)
	t.check(t.dev.LayerNormBackward(kernels.LayerNormBackward{
		DY: dy, X: n.x, Gamma: t.weight(name + ".weight"), Mean: n.mean, RStd: n.rstd,
		DX: dx, DGamma: t.grad(name + ".weight"), DBeta: t.grad(name + ".bias"),
		Rows: t.tokens, Cols: t.cfg.Width, AccumulateGamma: t.later(), AccumulateBeta: t.later(),
	}))
	return dx
}

// dropout returns x, or a gradient, with elements dropped.
func (t *pass) dropout(x kernels.Buffer, name string) kernels.Buffer {
	if t.cfg.Dropout == 0 {
		return x
	}
	y := t.floats(x.N)
	t.check(t.dev.Dropout(y, x, t.cfg.Dropout, kernels.Key{
		Seed: t.seed, Step: t.step, Microbatch: int64(t.microbatch), Op: kernels.OpKey(name),
	}))
	return y
}

func (t *pass) sum(a, b kernels.Buffer) kernels.Buffer {
	y := t.floats(a.N)
	t.check(t.dev.Sum(y, a, b))
	return y
}

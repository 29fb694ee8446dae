package parity

import (
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

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

// free releases the buffers.
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

// linearBackward returns the gradient of x.
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

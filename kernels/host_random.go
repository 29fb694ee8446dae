package kernels

import (
	"math"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// Dropout drops the elements whose draws (Key.Draw) are below p·2^32, truncated.
func (h *host) Dropout(y, x Buffer, p float32, key Key) error {
	c := h.call("Dropout")
	if !(p >= 0 && p < 1) {
		c.fault(ErrValue, "p is %v, want 0 <= p < 1", p)
	}
	out, in := c.floats("y", y, y.N), c.floats("x", x, y.N)
	c.aligned(operand{"y", y}, operand{"x", x})
	if c.done() {
		return c.err
	}
	if p == 0 {
		copy(out, in)
		return nil
	}
	// p < 1 in float32 is at most 1 - 2^-24.
	t := dropoutTask{out: out, in: in, limit: uint32(float64(p) * 0x1p32), keep: 1 - p, draws: key.philox()}
	launch(h, &h.operations.dropout, t, partsOf(len(out)))
	return nil
}

// dropoutTask computes Dropout, divided into whole blocks of draws.
type dropoutTask struct {
	out, in []float32
	limit   uint32 // an element is dropped if its draw is below limit
	keep    float32
	draws   vector.Philox
}

func (t *dropoutTask) part(i, parts int, w *worker) {
	begin, end := share(len(t.out), 4, i, parts)
	w.vector.Dropout(t.out[begin:end], t.in[begin:end], t.draws, uint64(begin/4), t.limit, t.keep)
}

// Normal draws pairs of numbers by the Box–Muller method in float64.
func (h *host) Normal(x Buffer, std float32, key Key) error {
	c := h.call("Normal")
	if !(std >= 0) || math.IsInf(float64(std), 0) {
		c.fault(ErrValue, "std is %v, want a finite number of at least 0", std)
	}
	out := c.floats("x", x, x.N)
	if c.done() {
		return c.err
	}
	for block := uint64(0); len(out) > 0; block++ {
		z := normals(key.Draw(block))
		n := min(4, len(out))
		for i := range out[:n] {
			out[i] = float32(float64(std) * z[i&3])
		}
		out = out[n:]
	}
	return nil
}

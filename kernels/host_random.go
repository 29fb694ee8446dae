package kernels

import (
	"math"
	"math/bits"
)

// openDropout opens the buffers of Dropout.
func openDropout(c *call, y, x Buffer, p float32) (out, in []float32) {
	if !(p >= 0 && p < 1) {
		c.fault(ErrValue, "p is %v, want 0 <= p < 1", p)
	}
	out = c.floats("y", y, y.N)
	in = c.floats("x", x, y.N)
	return out, in
}

// Dropout drops element i where its draw (Key.Draw) is below p·2^32.
func (h *Host) Dropout(y, x Buffer, p float32, key Key) error {
	c := h.call("Dropout")
	out, in := openDropout(&c, y, x, p)
	if c.err != nil {
		return c.err
	}
	if p == 0 {
		copy(out, in)
		return nil
	}
	// p < 1 in float32 is at most 1 - 2^-24.
	limit, keep := uint32(float64(p)*0x1p32), 1-p
	block, draws := uint64(0), key.philox()
	for ; len(out) >= 4 && len(in) >= 4; block++ {
		a, b, c, d := draws.draw(block)
		out[0] = keepFrom(a, limit, in[0]/keep)
		out[1] = keepFrom(b, limit, in[1]/keep)
		out[2] = keepFrom(c, limit, in[2]/keep)
		out[3] = keepFrom(d, limit, in[3]/keep)
		out, in = out[4:], in[4:]
	}
	u := key.Draw(block)
	for i, v := range in {
		out[i] = keepFrom(u[i&3], limit, v/keep)
	}
	return nil
}

// keepFrom returns v where draw is at least limit, else 0. It has no branch: none
// could foresee a draw.
func keepFrom(draw, limit uint32, v float32) float32 {
	_, below := bits.Sub32(draw, limit, 0)
	return math.Float32frombits(math.Float32bits(v) & (below - 1))
}

// openNormal opens the buffer of Normal.
func openNormal(c *call, x Buffer, std float32) []float32 {
	if !(std >= 0) || math.IsInf(float64(std), 0) {
		c.fault(ErrValue, "std is %v, want a finite number of at least 0", std)
	}
	return c.floats("x", x, x.N)
}

// Normal draws pairs by the method of Box and Muller in float64.
func (h *Host) Normal(x Buffer, std float32, key Key) error {
	c := h.call("Normal")
	out := openNormal(&c, x, std)
	if c.err != nil {
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

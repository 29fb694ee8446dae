package cuda

import (
	"math"

	"github.com/weir-ml/weir/kernels"
)

// Zero sets every element of x to 0.
func (d *Device) Zero(x kernels.Buffer) error {
	o := d.begin("Zero", d.checks.Zero(x))
	o.zero(o.at(x), x.N)
	return o.end()
}

// Copy sets dst to src.
func (d *Device) Copy(dst, src kernels.Buffer) error {
	o := d.begin("Copy", d.checks.Copy(dst, src))
	to, from := o.at(dst), o.at(src)
	if o.err == nil && to != from {
		o.copy(to, from, dst.N)
	}
	return o.end()
}

// Add adds src to dst.
func (d *Device) Add(dst, src kernels.Buffer) error {
	o := d.begin("Add", d.checks.Add(dst, src))
	o.each("sum", dst.N, o.at(dst), o.at(dst), o.at(src), uint64(dst.N))
	return o.end()
}

// Sum sets dst to a + b.
func (d *Device) Sum(dst, a, b kernels.Buffer) error {
	o := d.begin("Sum", d.checks.Sum(dst, a, b))
	o.each("sum", dst.N, o.at(dst), o.at(a), o.at(b), uint64(dst.N))
	return o.end()
}

// GELU computes the activation with an error of at most 2^-20·|x|.
func (d *Device) GELU(y, x kernels.Buffer) error {
	o := d.begin("GELU", d.checks.GELU(y, x))
	o.each("gelu", y.N, o.at(y), o.at(x), uint64(y.N))
	return o.end()
}

// GELUBackward multiplies dy by the derivative of GELU at x.
func (d *Device) GELUBackward(dx, dy, x kernels.Buffer) error {
	o := d.begin("GELUBackward", d.checks.GELUBackward(dx, dy, x))
	o.each("gelu_grad", dx.N, o.at(dx), o.at(dy), o.at(x), uint64(dx.N))
	return o.end()
}

// Dropout sets element i to 0 if its draw is below p·2^32, with the same bits as the host.
func (d *Device) Dropout(y, x kernels.Buffer, p float32, key kernels.Key) error {
	o := d.begin("Dropout", d.checks.Dropout(y, x, p, key))
	if p == 0 {
		if to, from := o.at(y), o.at(x); o.err == nil && to != from {
			o.copy(to, from, y.N)
		}
		return o.end()
	}
	limit := uint32(float64(p) * 0x1p32)
	o.each("dropout", (y.N+3)/4, o.at(y), o.at(x), uint64(y.N), key.Seed, key.Stream(), 0, uint64(limit), word(1-p))
	return o.end()
}

// Normal draws pairs of numbers by the Box–Muller method in float64.
func (d *Device) Normal(x kernels.Buffer, std float32, key kernels.Key) error {
	o := d.begin("Normal", d.checks.Normal(x, std, key))
	o.each("normal", (x.N+3)/4, o.at(x), uint64(x.N), key.Seed, key.Stream(), word(std))
	return o.end()
}

// squareParts is the number of partial sums of the squares.
const (
	squareParts = 64
	squareBytes = 8 * squareParts
)

// SumSquares sums squares in float64, and waits for the sum.
func (d *Device) SumSquares(x kernels.Buffer) (float64, error) {
	var sum [1]float64
	err := d.SumsOfSquares(sum[:], []kernels.Buffer{x})
	return sum[0], err
}

// SumsOfSquares is SumSquares for several buffers. It waits once for every 1,600 of them.
func (d *Device) SumsOfSquares(sums []float64, xs []kernels.Buffer) error {
	const most = (varyingAt - squareBytes) / 8
	for len(xs) > 0 {
		o := d.begin("SumSquares", nil)
		n := min(len(xs), most)
		for i, x := range xs[:n] {
			if _, err := d.checks.SumSquares(x); err != nil {
				return err
			}
			o.line("squares", squareParts, 256, uint64(d.scratch), o.at(x), uint64(x.N))
			o.line("squares_sum", 1, 1, uint64(d.scratch)+squareBytes+8*uint64(i), uint64(d.scratch))
		}
		words(&o, sums[:n], d.scratch+squareBytes)
		if o.err != nil {
			return o.end()
		}
		sums, xs = sums[n:], xs[n:]
	}
	return nil
}

// AdamW updates Weight, M and V by the host's formula.
func (d *Device) AdamW(op kernels.AdamW) error {
	o := d.begin("AdamW", d.checks.AdamW(op))
	correction := func(beta float32) float32 {
		return float32(1 / (1 - math.Pow(float64(beta), float64(op.Step))))
	}
	rest := func(beta float32) float32 { return float32(1 - float64(beta)) }
	o.each("adamw", op.Weight.N, o.at(op.Weight), o.at(op.Grad), o.at(op.M), o.at(op.V), uint64(op.Weight.N), word(op.Factor),
		word(op.Beta1), word(rest(op.Beta1)), word(op.Beta2), word(rest(op.Beta2)), word(correction(op.Beta1)), word(correction(op.Beta2)),
		word(op.Epsilon), word(op.LearningRate), word(op.WeightDecay))
	return o.end()
}

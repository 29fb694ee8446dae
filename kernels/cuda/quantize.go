package cuda

import (
	"math"

	"github.com/weir-ml/weir/kernels"
)

// quantized holds the addresses of a quantized matrix's parts.
type quantized struct {
	codes, factors, scales uint64
	format, scaling        uint64
}

// matrix returns the addresses of the parts of a matrix.
func (o *operation) matrix(q kernels.Quantized) (m quantized) {
	if q == (kernels.Quantized{}) || o.err != nil {
		return m
	}
	o.fits(q.Rows, q.Cols)
	factors, scales := q.Encoding.Offsets(q.Rows, q.Cols)
	m.codes = o.at(q.Data)
	m.factors = m.codes + uint64(factors)
	if s := q.Encoding.Scaling; s == kernels.MX32 || s == kernels.NV16 {
		m.scales = m.codes + uint64(scales)
	}
	m.format, m.scaling = uint64(q.Encoding.Format), uint64(q.Encoding.Scaling)
	return m
}

// tallyOf is the offset in scratch memory of the tally of a quantization.
const tallyOf = 512

// Quantize gives the same bits as the host. Blocks merge their tallies by integer atomics.
func (d *Device) Quantize(op kernels.Quantize) error {
	o := d.begin("Quantize", d.checks.Quantize(op))
	x, whole, met := o.at(op.X), uint64(d.scratch), uint64(d.scratch)+tallyOf
	rowwise, columnwise := o.matrix(op.Rowwise), o.matrix(op.Columnwise)
	var frozen, tally uint64
	if op.Scale != (kernels.Cell{}) {
		frozen = of(o.at(op.Scale.Buffer), op.Scale.Index)
	}
	if op.Tally != (kernels.Cell{}) {
		tally = of(o.at(op.Tally.Buffer), op.Tally.Index*kernels.TallyWords)
	}
	for _, t := range []uint64{whole, met} {
		o.line("quantize_begin", 1, 1, t)
	}
	encoding := op.Rowwise.Encoding
	if rowwise.codes == 0 {
		encoding = op.Columnwise.Encoding
	}
	if s := encoding.Scaling; frozen == 0 && (s == kernels.PerTensor || s == kernels.NV16) {
		o.line("quantize_amax", min((op.X.N+127)/128, 1024), 128, whole, x, uint64(op.X.N))
	}
	quantize := func(m quantized, rows, cols int, down, right int) {
		if m.codes == 0 {
			return
		}
		cell := uint64(0)
		if tally != 0 {
			cell, tally = met, 0
			defer func() {
				o.line("quantize_end", 1, 1, of(o.at(op.Tally.Buffer), op.Tally.Index*kernels.TallyWords), met)
			}()
		}
		blocks := rows
		if encoding.Scaling == kernels.Tiles128 {
			blocks = (rows + 127) / 128
		}
		o.launch("quantize", blocks, (cols+127)/128, 128,
			m.codes, m.factors, m.scales, cell, whole, frozen, x, uint64(rows), uint64(cols), uint64(down), uint64(right), m.format, m.scaling,
			word(float32(math.Ldexp(1, -op.Margin))), word(op.Epsilon), flag(op.AnyScale), flag(op.Down), flag(op.Stochastic), op.Key.Seed, op.Key.Stream(), 0)
	}
	quantize(rowwise, op.Rows, op.Cols, op.Cols, 1)
	quantize(columnwise, op.Cols, op.Rows, 1, op.Cols)
	return o.end()
}

// Dequantize decodes element by element.
func (d *Device) Dequantize(dst kernels.Buffer, q kernels.Quantized, transposed bool) error {
	o := d.begin("Dequantize", d.checks.Dequantize(dst, q, transposed))
	m := o.matrix(q)
	o.each("dequantize", dst.N, o.at(dst), m.codes, m.factors, m.scales, uint64(dst.N), uint64(q.Cols), m.format, m.scaling,
		uint64(q.Rows), flag(transposed))
	return o.end()
}

// QuantizedWorkspace returns 1, because the product decodes into shared memory.
func (d *Device) QuantizedWorkspace(m, n, k int) int { return 1 }

// QuantizedMatMul gives the same bits on every device.
func (d *Device) QuantizedMatMul(op kernels.QuantizedMatMul) error {
	const side = 16
	o := d.begin("QuantizedMatMul", d.checks.QuantizedMatMul(op))
	a, b := o.matrix(op.A), o.matrix(op.B)
	span := uint64(128)
	if op.A.Encoding.Scaling == kernels.MX32 || op.B.Encoding.Scaling == kernels.MX32 {
		span = 32
	}
	o.launch("quantized_matmul", (op.N+side-1)/side, (op.M+side-1)/side, 256, o.at(op.C), a.codes, a.factors, a.scales, a.format, a.scaling,
		b.codes, b.factors, b.scales, b.format, b.scaling, o.at(op.Bias), uint64(op.M), uint64(op.N), uint64(op.K), span, flag(op.Accumulate))
	return o.end()
}

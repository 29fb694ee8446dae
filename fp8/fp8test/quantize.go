package fp8test

import (
	"fmt"
	"math"
	"slices"

	"github.com/weir-ml/weir/kernels"
)

// both is an operation on the device and on the host.
type both struct{ device, host kernels.Quantize }

// quantized is a matrix on both.
type quantized struct{ device, host kernels.Quantized }

// room makes room for a matrix.
func (p *pair) room(e kernels.Encoding, rows, cols int) quantized {
	fill := make([]byte, e.Bytes(rows, cols))
	for i := range fill {
		fill[i] = 0x5a
	}
	b := p.bytes(fill)
	return quantized{
		kernels.Quantized{Data: b.device, Encoding: e, Rows: rows, Cols: cols},
		kernels.Quantized{Data: b.host, Encoding: e, Rows: rows, Cols: cols},
	}
}

// quantize compares every way of a recipe: both orientations and each alone, the tally,
// and what is decoded again.
func (r *Recipe) quantize(p *pair) {
	round := 0
	for _, way := range r.Ways {
		for _, s := range p.shapes() {
			round++
			p.quantizeOnce(way, s[0], s[1], round)
			p.drop()
		}
	}
}

func (p *pair) quantizeOnce(way Way, rows, cols, round int) {
	what := fmt.Sprintf("%d×%d in %s, round %d (%+v)", rows, cols, way.Encoding, round, way.Options)
	op := both{way.Options, way.Options}
	x := p.floats(p.numbers(rows, cols, round))
	tally := p.ints(make([]int32, 2*kernels.TallyWords))
	op.device.X, op.host.X = x.device, x.host
	op.device.Tally, op.host.Tally = kernels.Cell{Buffer: tally.device, Index: 1}, kernels.Cell{Buffer: tally.host, Index: 1}
	if way.Frozen {
		slab := p.floats([]float32{1, 0.3, 1e4, 0x1p60, 0x1p-70, 448})
		at := round % 6
		op.device.Scale, op.host.Scale = kernels.Cell{Buffer: slab.device, Index: at}, kernels.Cell{Buffer: slab.host, Index: at}
	}
	op.device.Rows, op.device.Cols, op.host.Rows, op.host.Cols = rows, cols, rows, cols
	var row, column quantized
	if round%3 != 1 {
		row = p.room(way.Encoding, rows, cols)
		op.device.Rowwise, op.host.Rowwise = row.device, row.host
	}
	if round%3 != 2 {
		column = p.room(way.Encoding, cols, rows)
		op.device.Columnwise, op.host.Columnwise = column.device, column.host
	}
	for range 2 { // the second time the tally has something in it
		p.must(p.host.Quantize(op.host))
		if err := p.device.Quantize(op.device); err != nil {
			p.fault("Quantize %s: %w", what, err)
			return
		}
	}
	for _, q := range []quantized{row, column} {
		if q.host.Rows > 0 {
			p.sameMatrix(what, q)
			p.decode(what, q)
		}
	}
	p.sameTally(what, tally)
}

// sameMatrix compares codes and scales.
func (p *pair) sameMatrix(what string, q quantized) {
	got, want := make([]byte, q.host.Data.N), make([]byte, q.host.Data.N)
	p.must(p.device.ReadUint8(got, q.device.Data))
	p.must(p.host.ReadUint8(want, q.host.Data))
	e := q.host.Encoding
	stride := q.host.Cols
	if e.Format == kernels.E2M1 {
		stride = (q.host.Cols + 1) / 2
	}
	codes := q.host.Rows * stride
	for i, w := range want {
		switch {
		case got[i] == w, i >= codes && i < (codes+3)/4*4:
			continue
		case i < codes && nanCode(e.Format, got[i]) && nanCode(e.Format, w):
			continue
		case i < codes:
			p.fault("%s: byte %d of row %d is %#x, want %#x", what, i%stride, i/stride, got[i], w)
		default:
			p.fault("%s: byte %d of the scales is %#x, want %#x", what, i-(codes+3)/4*4, got[i], w)
		}
		return
	}
}

// nanCode reports whether a code is NaN.
func nanCode(f kernels.Format, code byte) bool {
	return f == kernels.E4M3 && code&0x7f == 0x7f || f == kernels.E5M2 && code&0x7f > 0x7c
}

// decode compares Dequantize.
func (p *pair) decode(what string, q quantized) {
	for _, transposed := range []bool{false, true} {
		dst := p.alloc(kernels.Float32, q.host.Rows*q.host.Cols)
		p.must(p.host.Dequantize(dst.host, q.host, transposed))
		if err := p.device.Dequantize(dst.device, q.device, transposed); err != nil {
			p.fault("Dequantize %s: %w", what, err)
			return
		}
		p.sameFloats(fmt.Sprintf("%s, decoded, transposed %t", what, transposed), dst)
	}
}

// sameFloats compares bits.
func (p *pair) sameFloats(what string, b twin) {
	got, want := make([]float32, b.host.N), make([]float32, b.host.N)
	p.must(p.device.ReadFloat32(got, b.device))
	p.must(p.host.ReadFloat32(want, b.host))
	for i, w := range want {
		if math.Float32bits(got[i]) != math.Float32bits(w) && (w == w || got[i] == got[i]) {
			p.fault("%s: element %d is %v (%#x), want %v (%#x)", what, i, got[i], math.Float32bits(got[i]), w, math.Float32bits(w))
			return
		}
	}
}

// sameTally compares tallies; the bits of a NaN do not count.
func (p *pair) sameTally(what string, b twin) {
	const nan = 0x7f800001
	got, want := make([]int32, b.host.N), make([]int32, b.host.N)
	p.must(p.device.ReadInt32(got, b.device))
	p.must(p.host.ReadInt32(want, b.host))
	amax := kernels.TallyWords // its first word
	if got[amax] >= nan && want[amax] >= nan {
		got[amax] = want[amax]
	}
	if !slices.Equal(got, want) {
		p.fault("%s: the tally is %v, want %v", what, got[amax:], want[amax:])
	}
}

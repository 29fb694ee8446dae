package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/weir-ml/weir/kernels"
)

// Low precision is compared with the host in plain Go, which the tests of package kernels compare with the
// definitions of the formats.
func quantizationCases() []Case {
	return []Case{
		newBitCase("quantize", quantize),
		newBitCase("quantize/huge", quantizeHuge),
		newBitCase("dequantize", dequantize),
		newBitCase("quantize/stochastic", quantizeStochastic),
		newBitCase("quantize/tally", quantizeTally),
		newBitCase("quantize/full tally", quantizeFullTally),
		newCase("quantize/refused", true, quantizeRefused),
		newBitCase("quantized matmul", quantizedProduct),
	}
}

// encodings returns all valid encodings.
func encodings() (all []kernels.Encoding) {
	for f := kernels.E4M3; f <= kernels.E2M1; f++ {
		for s := kernels.PerTensor; s <= kernels.NV16; s++ {
			if e := (kernels.Encoding{Format: f, Scaling: s}); e.Valid() {
				all = append(all, e)
			}
		}
	}
	return all
}

// rules returns the combinations of options to test with an encoding.
func rules(e kernels.Encoding) []kernels.Quantize {
	switch e.Scaling {
	case kernels.PerTensor:
		return []kernels.Quantize{{}, {AnyScale: true, Margin: 3}, {AnyScale: true, Epsilon: 1e-3}}
	case kernels.MX32:
		return []kernels.Quantize{{}, {Down: true}}
	case kernels.NV16:
		return []kernels.Quantize{{}}
	}
	return []kernels.Quantize{{}, {AnyScale: true}, {Epsilon: 1e-3}}
}

// quantizeShapes lists numbers of rows and columns around the block sizes of all formats.
var quantizeShapes = [][2]int{{1, 1}, {3, 5}, {2, 16}, {17, 33}, {1, 300}, {130, 129}}

// quantize quantizes x in both orientations, and records the codes, the scales and the tally.
func (l *lab) quantize(title string, op kernels.Quantize, e kernels.Encoding, x []float32, rows, cols int) kernels.Quantize {
	title = fmt.Sprintf("Quantize %d×%d in %s, %s", rows, cols, e, title)
	op.X, op.Rows, op.Cols = l.put("X", x), rows, cols
	op.Rowwise, op.Columnwise = l.none(e, rows, cols), l.none(e, cols, rows)
	l.do(title, func() error { return l.d.Quantize(op) }, op.Rowwise.Data, op.Columnwise.Data, op.Tally.Buffer)
	l.keepMatrix(title+": Rowwise", op.Rowwise)
	l.keepMatrix(title+": Columnwise", op.Columnwise)
	if op.Tally != (kernels.Cell{}) {
		l.keepTally(title+": Tally", op.Tally.Buffer)
	}
	return op
}

func quantize(l *lab) {
	for i, e := range encodings() {
		for j, s := range quantizeShapes {
			for k, op := range rules(e) {
				rows, cols := s[0], s[1]
				x := l.ranging(rows, cols, (i+j+k)%3 == 0)
				if (i+j+k)%4 > 1 {
					x = l.atEdges(len(x), (i+j)%2 == 0)
				}
				title := fmt.Sprintf("rule %d", k)
				op = l.quantize(title, op, e, x, rows, cols)
				l.keepDecoded(title, op.Rowwise)
				op.Rowwise, op.Columnwise = kernels.Quantized{}, l.none(e, cols, rows)
				l.do(title, func() error { return l.d.Quantize(op) }, op.Columnwise.Data)
				l.keepMatrix(title+": Columnwise alone", op.Columnwise)
				l.drop()
			}
		}
	}
	slab := []float32{3, 0.5, 1000, 1e-20, 1, 448}
	for _, f := range []kernels.Format{kernels.E4M3, kernels.E5M2} {
		for i, scale := range slab {
			x := l.ranging(9, 21, i == 1)
			if i > 2 {
				x = l.atEdges(len(x), i > 3)
			}
			op := kernels.Quantize{Scale: kernels.Cell{Buffer: l.put("Scale", slab), Index: i}}
			l.quantize(fmt.Sprintf("scale %v", scale), op, kernels.Encoding{Format: f}, x, 9, 21)
			l.drop()
		}
	}
}

// quantizeHuge quantizes numbers whose nearest code may represent more than the greatest
// float32.
func quantizeHuge(l *lab) {
	for _, e := range encodings() {
		for _, s := range [][2]int{{1, 1}, {3, 300}, {40, 70}} {
			for k, op := range append(rules(e), kernels.Quantize{Stochastic: true, Key: baseKey}) {
				x := make([]float32, s[0]*s[1])
				for i := range x {
					x[i] = math.MaxFloat32 * []float32{1, -1, 0.99, -0.96, 0.9, 0.6, 0x1p-8, 0x1p-16}[l.rng.IntN(8)]
				}
				title := fmt.Sprintf("huge numbers, rule %d", k)
				op = l.quantize(title, op, e, x, s[0], s[1])
				l.keepDecoded(title, op.Rowwise)
				l.keepDecoded(title, op.Columnwise)
				l.drop()
			}
		}
	}
}

// dequantize decodes random codes with the least scales, the greatest ones, and NaN.
func dequantize(l *lab) {
	const rows, cols = 5, 300
	for _, e := range encodings() {
		codes := rows * cols
		if e.Format == kernels.E2M1 {
			codes /= 2
		}
		for exponent := 0; exponent < 256; exponent++ {
			if exponent == 2 {
				exponent = 230 // products with larger scales may overflow float32
			}
			q := l.none(e, rows, cols)
			data := make([]byte, q.Data.N)
			for i := range data {
				data[i] = byte(l.rng.Uint32())
			}
			scales := data[codes:]
			switch e.Scaling {
			case kernels.MX32:
				for i := range scales {
					scales[i] = byte(exponent - l.rng.IntN(2)*l.rng.IntN(256))
				}
				scales = nil
			case kernels.NV16:
				scales = scales[:4]
			}
			for i := 0; i < len(scales); i += 4 {
				binary.NativeEndian.PutUint32(scales[i:], uint32(exponent)<<23|l.rng.Uint32()>>9&-uint32(l.rng.IntN(2)))
			}
			l.must("WriteUint8", l.d.WriteUint8(q.Data, data))
			l.unchanged("", q.Data)
			l.keepDecoded(fmt.Sprintf("Dequantize in %s, scales around 2^%d", e, exponent-127), q)
			l.drop()
		}
	}
}

func quantizeStochastic(l *lab) {
	for _, e := range encodings() {
		for _, s := range [][2]int{{3, 5}, {40, 130}, {130, 31}} {
			op := kernels.Quantize{Stochastic: true, Key: baseKey}
			l.quantize("stochastic", op, e, l.ranging(s[0], s[1], false), s[0], s[1])
			l.drop()
		}
	}
}

// quantizeTally merges three calls into one tally: the last of them has no Rowwise.
func quantizeTally(l *lab) {
	for i, e := range encodings() {
		const rows, cols = 33, 70
		tally := kernels.Cell{Buffer: l.putInts("Tally", make([]int32, 3*kernels.TallyWords)), Index: 1}
		for round := range 3 {
			op := kernels.Quantize{Tally: tally}
			if e.Scaling == kernels.PerTensor {
				op.Scale = kernels.Cell{Buffer: l.put("Scale", []float32{1e-6, 1, 5000}), Index: round}
			}
			x := l.ranging(rows, cols, round == i%3)
			if round < 2 {
				l.quantize("with a tally", op, e, x, rows, cols)
				continue
			}
			op.X, op.Rows, op.Cols, op.Columnwise = l.put("X", x), rows, cols, l.none(e, cols, rows)
			l.do("Quantize", func() error { return l.d.Quantize(op) }, op.Columnwise.Data, tally.Buffer)
			l.keepTally(fmt.Sprintf("the tally of Columnwise in %s", e), tally.Buffer)
		}
		l.drop()
	}
}

// quantizeFullTally checks the limits of the counters: the number of non-finite elements stops
// at the greatest int32, the others carry into their upper words.
func quantizeFullTally(l *lab) {
	nan := float32(math.NaN())
	x := []float32{nan, 1e6, nan, -1e6, 1e-9, nan, 1e-9}
	for _, nonFinite := range []int32{0, math.MaxInt32 - 3, math.MaxInt32 - 2, math.MaxInt32} {
		op := kernels.Quantize{
			Scale: kernels.Cell{Buffer: l.put("Scale", []float32{1})},
			Tally: kernels.Cell{Buffer: l.putInts("Tally", []int32{0, 0, 0, nonFinite, -1, 4, -2, 5})},
		}
		l.quantize("a full tally", op, kernels.Encoding{}, x, 1, len(x))
		l.drop()
	}
}

func quantizedProduct(l *lab) {
	all := encodings()
	for i, s := range [][3]int{{1, 1, 1}, {3, 5, 31}, {15, 33, 200}, {2, 40, 513}, {30, 17, 260}} {
		for j, a := range all {
			for k, b := range all {
				if i > 1 && (i+j+k)%8 != 0 && (a != b || i > 4) {
					continue
				}
				op := kernels.QuantizedMatMul{M: s[0], N: s[1], K: s[2], Accumulate: (i+j+k)%2 == 0}
				x, y := l.normal(op.M*op.K, 1), l.normal(op.N*op.K, 1)
				if (i+j)%5 == 0 {
					x, y = l.ranging(op.M, op.K, true), l.ranging(op.N, op.K, true)
				}
				op.A, op.B = l.quantized(a, x, op.M, op.K), l.quantized(b, y, op.N, op.K)
				op.Workspace = l.result("Workspace", l.d.QuantizedWorkspace(op.M, op.N, op.K))
				op.C, _ = l.sum("C", op.M*op.N, op.Accumulate)
				if (j+k)%3 == 0 {
					op.Bias = l.put("Bias", l.normal(op.N, 1))
				}
				title := fmt.Sprintf("QuantizedMatMul %d×%d×%d of %s and %s, Accumulate %t", op.M, op.N, op.K, a, b, op.Accumulate)
				l.do(title, func() error { return l.d.QuantizedMatMul(op) }, op.C, op.Workspace)
				l.keepNumbers(title, op.C)
				l.drop()
			}
		}
	}
}

// quantizeRefused tries invalid calls.
func quantizeRefused(l *lab) {
	e := kernels.Encoding{Format: kernels.E4M3, Scaling: kernels.MX32}
	op := kernels.Quantize{X: l.put("X", l.normal(64, 1)), Rows: 2, Cols: 32, Rowwise: l.none(e, 2, 32), Columnwise: l.none(e, 32, 2)}
	slab := kernels.Cell{Buffer: l.put("Scale", []float32{1, 2})}
	tally := l.putInts("Tally", make([]int32, 12))
	for _, c := range []struct {
		title  string
		want   error
		change func(op *kernels.Quantize)
	}{
		{"without a result", kernels.ErrShape, func(op *kernels.Quantize) { op.Rowwise, op.Columnwise = kernels.Quantized{}, kernels.Quantized{} }},
		{"into an encoding that does not exist", kernels.ErrShape, func(op *kernels.Quantize) { op.Rowwise.Encoding.Scaling = kernels.NV16 }},
		{"into a format that does not exist", kernels.ErrShape, func(op *kernels.Quantize) { op.Rowwise.Encoding.Format = 9 }},
		{"into a scaling that does not exist", kernels.ErrShape, func(op *kernels.Quantize) { op.Rowwise.Encoding.Scaling = 9 }},
		{"into two encodings", kernels.ErrShape, func(op *kernels.Quantize) { op.Columnwise.Encoding.Format = kernels.E5M2 }},
		{"into one buffer", kernels.ErrShape, func(op *kernels.Quantize) { op.Columnwise.Data = op.Rowwise.Data }},
		{"with the sides exchanged", kernels.ErrShape, func(op *kernels.Quantize) { op.Rowwise.Rows, op.Rowwise.Cols = 32, 2 }},
		{"with a frozen scale of blocks", kernels.ErrShape, func(op *kernels.Quantize) { op.Scale = slab }},
		{"with a margin of blocks", kernels.ErrShape, func(op *kernels.Quantize) { op.Margin = 1 }},
		{"with a scale beyond its slab", kernels.ErrShape, func(op *kernels.Quantize) {
			op.Rowwise, op.Columnwise = l.none(kernels.Encoding{}, 2, 32), kernels.Quantized{}
			op.Scale = kernels.Cell{Buffer: slab.Buffer, Index: 2}
		}},
		{"with a margin below 0", kernels.ErrValue, func(op *kernels.Quantize) {
			op.Rowwise, op.Columnwise, op.Margin = l.none(kernels.Encoding{}, 2, 32), kernels.Quantized{}, -1
		}},
		{"with a tally beyond its slab", kernels.ErrShape, func(op *kernels.Quantize) { op.Tally = kernels.Cell{Buffer: tally, Index: 1} }},
		{"with a tally before its slab", kernels.ErrShape, func(op *kernels.Quantize) { op.Tally = kernels.Cell{Buffer: tally, Index: -1} }},
		{"with a tally of float32", kernels.ErrShape, func(op *kernels.Quantize) { op.Tally = slab }},
		{"with an epsilon below 0", kernels.ErrValue, func(op *kernels.Quantize) { op.Epsilon = -1 }},
		{"with an infinite epsilon", kernels.ErrValue, func(op *kernels.Quantize) { op.Epsilon = float32(math.Inf(1)) }},
	} {
		changed := op
		c.change(&changed)
		l.refuse("Quantize "+c.title, c.want, func() error { return l.d.Quantize(changed) })
	}
	if n := (kernels.Encoding{}).Bytes(math.MaxInt/2, 8); n != math.MaxInt {
		l.fault("the size of a matrix larger than any memory is %d bytes", n)
	}
	if n := (kernels.Encoding{Scaling: kernels.NV16}).Bytes(2, 2) + (kernels.Encoding{}).Bytes(0, 3) + (kernels.Encoding{}).Bytes(3, -1); n != 0 {
		l.fault("the size of invalid matrices is %d bytes", n)
	}
}

package kerneltest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/weir-ml/weir/kernels"
)

func quantizationCases() []Case {
	return []Case{
		newCase("quantize", false, quantize),
		newCase("quantize/huge", false, quantizeHuge),
		newCase("dequantize", false, dequantize),
		newCase("quantize/stochastic", false, quantizeStochastic),
		newCase("quantize/tally", false, quantizeTally),
		newCase("quantize/full tally", false, quantizeFullTally),
		newCase("quantize/refused", true, quantizeRefused),
		newCase("quantized matmul", false, quantizedProduct),
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

// rules returns the options of quantization for an encoding.
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

func quantize(l *lab) {
	for i, e := range encodings() {
		for j, s := range quantizeShapes {
			for k, op := range rules(e) {
				rows, cols := s[0], s[1]
				x := l.ranging(rows, cols, (i+j+k)%3 == 0)
				if (i+j+k)%4 > 1 {
					x = l.atEdges(len(x), (i+j)%2 == 0)
				}
				title := fmt.Sprintf("Quantize %d×%d in %s, %+v", rows, cols, e, op)
				op.X, op.Rows, op.Cols = l.put("X", x), rows, cols
				op.Rowwise, op.Columnwise = l.none(e, rows, cols), l.none(e, cols, rows)
				l.do(title, func() error { return l.d.Quantize(op) }, op.Rowwise.Data, op.Columnwise.Data)
				l.check(title+": Rowwise", op, op.Rowwise, x, 0)
				l.check(title+": Columnwise", op, op.Columnwise, transposed(x, rows, cols), 0)
				both := l.bytesOf(op.Columnwise)

				// Each matrix quantized alone equals the one quantized with the other, to the
				// bit.
				alone := op
				alone.Rowwise, alone.Columnwise = kernels.Quantized{}, l.none(e, cols, rows)
				l.do(title, func() error { return l.d.Quantize(alone) }, alone.Columnwise.Data)
				l.sameBytes(title+": Columnwise alone", l.bytesOf(alone.Columnwise), both)
				l.decodes(title, op.Rowwise)
				l.drop()
			}
		}
	}
	l.frozen()
}

// quantizeHuge checks that finite numbers decode to finite numbers, even if the code nearest to
// an element represents more than the greatest float32.
func quantizeHuge(l *lab) {
	for _, e := range encodings() {
		for _, s := range [][2]int{{1, 1}, {3, 300}, {40, 70}} {
			for k, op := range append(rules(e), kernels.Quantize{Stochastic: true, Key: baseKey}) {
				rows, cols := s[0], s[1]
				x := make([]float32, rows*cols)
				for i := range x {
					x[i] = math.MaxFloat32 * []float32{1, -1, 0.99, -0.96, 0.9, 0.6, 0x1p-8, 0x1p-16}[l.rng.IntN(8)]
				}
				title := fmt.Sprintf("Quantize of huge numbers, %d×%d in %s, rule %d", rows, cols, e, k)
				op.X, op.Rows, op.Cols = l.put("X", x), rows, cols
				op.Rowwise, op.Columnwise = l.none(e, rows, cols), l.none(e, cols, rows)
				l.do(title, func() error { return l.d.Quantize(op) }, op.Rowwise.Data, op.Columnwise.Data)
				l.check(title+": Rowwise", op, op.Rowwise, x, 0)
				l.check(title+": Columnwise", op, op.Columnwise, transposed(x, rows, cols), 0)
				for _, q := range []kernels.Quantized{op.Rowwise, op.Columnwise} {
					for i, v := range l.decodes(title, q) {
						if math.Abs(float64(v)) > math.MaxFloat32 || v != v {
							l.fault("%s: element %d decodes to %v", title, i, v)
							break
						}
					}
				}
				l.drop()
			}
		}
	}
}

// dequantize decodes random codes with the least scales, the greatest ones, and NaN.
func dequantize(l *lab) {
	for _, e := range encodings() {
		const rows, cols = 5, 300
		for exponent := 0; exponent < 256; exponent++ {
			if exponent == 2 {
				exponent = 230 // products with larger scales may overflow float32
			}
			q := l.none(e, rows, cols)
			m := l.bytesOf(q)
			for i := range m.data {
				m.data[i] = byte(l.rng.Uint32())
			}
			scales := m.data[m.from:]
			switch e.Scaling {
			case kernels.MX32:
				for i := range scales {
					scales[i] = byte(exponent - l.rng.IntN(2)*l.rng.IntN(256))
				}
			case kernels.NV16:
				scales = scales[:4]
			}
			if e.Scaling != kernels.MX32 {
				for i := 0; i < len(scales); i += 4 {
					binary.NativeEndian.PutUint32(scales[i:], uint32(exponent)<<23|l.rng.Uint32()>>9&-uint32(l.rng.IntN(2)))
				}
			}
			l.must("WriteUint8", l.d.WriteUint8(q.Data, m.data))
			l.unchanged("", q.Data)
			l.decodes(fmt.Sprintf("Dequantize in %s, scales around 2^%d", e, exponent-127), q)
			l.drop()
		}
	}
}

// frozen quantizes with a scale from a slab.
func (l *lab) frozen() {
	slab := []float32{3, 0.5, 1000, 1e-20, 1, 448}
	for _, f := range []kernels.Format{kernels.E4M3, kernels.E5M2} {
		for i, scale := range slab {
			e := kernels.Encoding{Format: f}
			x := l.ranging(9, 21, i == 1)
			if i > 2 {
				x = l.atEdges(len(x), i > 3)
			}
			op := kernels.Quantize{
				X: l.put("X", x), Rows: 9, Cols: 21, Scale: kernels.Cell{Buffer: l.put("Scale", slab), Index: i},
				Rowwise: l.none(e, 9, 21), Columnwise: l.none(e, 21, 9),
			}
			title := fmt.Sprintf("Quantize in %s with scale %v", e, scale)
			l.do(title, func() error { return l.d.Quantize(op) }, op.Rowwise.Data, op.Columnwise.Data)
			l.check(title, op, op.Rowwise, x, scale)
			l.check(title+": Columnwise", op, op.Columnwise, transposed(x, 9, 21), scale)
			l.drop()
		}
	}
}

// sameBytes compares codes and scales, but not the padding between them.
func (l *lab) sameBytes(title string, got, want *matrixBytes) {
	for r := range want.rows {
		for c := range want.cols {
			a, b := got.scales(r, c)
			x, y := want.scales(r, c)
			if got.code(r, c) != want.code(r, c) || math.Float32bits(a) != math.Float32bits(x) || math.Float32bits(b) != math.Float32bits(y) && b == b {
				l.fault("%s: element %d,%d differs", title, r, c)
				return
			}
		}
	}
}

// decodes checks Dequantize, and returns the decoded matrix.
func (l *lab) decodes(title string, q kernels.Quantized) []float32 {
	m := l.bytesOf(q)
	want := make([]float32, q.Rows*q.Cols)
	for r := range q.Rows {
		for c := range q.Cols {
			want[r*q.Cols+c] = m.value(r, c)
		}
	}
	dst, turned := l.result("dst", len(want)), l.result("dst", len(want))
	l.do(title, func() error { return l.d.Dequantize(dst, q, false) }, dst)
	l.do(title, func() error { return l.d.Dequantize(turned, q, true) }, turned)
	l.exactlyOrNaN(title+": decoded", l.read(dst), want)
	l.exactlyOrNaN(title+": decoded and transposed", l.read(turned), transposed(want, q.Rows, q.Cols))
	return want
}

// exactlyOrNaN is exactly, except that all NaNs count as equal.
func (l *lab) exactlyOrNaN(title string, got, want []float32) {
	for i, w := range want {
		if math.Float32bits(got[i]) != math.Float32bits(w) && (w == w || got[i] == got[i]) {
			l.fault("%s: element %d is %v, want exactly %v", title, i, got[i], w)
			return
		}
	}
}

// quantizeStochastic checks that an element's draw selects one of its two neighbours, the same
// one in both orientations, and that each is selected with the right frequency.
func quantizeStochastic(l *lab) {
	for _, e := range encodings() {
		for _, s := range [][2]int{{3, 5}, {40, 130}, {130, 31}} {
			rows, cols := s[0], s[1]
			title := fmt.Sprintf("Quantize %d×%d in %s, stochastic", rows, cols, e)
			x := l.ranging(rows, cols, false)
			op := kernels.Quantize{
				X: l.put("X", x), Rows: rows, Cols: cols, Rowwise: l.none(e, rows, cols), Columnwise: l.none(e, cols, rows),
				Stochastic: true, Key: baseKey,
			}
			l.do(title, func() error { return l.d.Quantize(op) }, op.Rowwise.Data, op.Columnwise.Data)
			l.check(title+": Rowwise", op, op.Rowwise, x, 0)
			l.check(title+": Columnwise", op, op.Columnwise, transposed(x, rows, cols), 0)
			if e.Scaling == kernels.PerTensor || e.Scaling == kernels.Tiles128 {
				a, b := l.bytesOf(op.Rowwise), l.bytesOf(op.Columnwise)
				for i := range x {
					if a.code(i/cols, i%cols) != b.code(i%cols, i/cols) {
						l.fault("%s: element %d depends on the orientation", title, i)
						break
					}
				}
			}
			l.drop()
		}
		// 1 + 5/16 of the distance to the next value, in every format.
		const n = 4096
		x := make([]float32, n)
		for i := range x {
			x[i] = 1 + 5.0/16*map[kernels.Format]float32{kernels.E4M3: 0.125, kernels.E5M2: 0.25, kernels.E2M1: 0.5}[e.Format]
		}
		x[0] = map[kernels.Format]float32{kernels.E4M3: 448, kernels.E5M2: 57344, kernels.E2M1: 6}[e.Format]
		if e.Scaling != kernels.PerTensor {
			continue
		}
		op := kernels.Quantize{X: l.put("X", x), Rows: n, Cols: 1, Rowwise: l.none(e, n, 1), Stochastic: true, Key: baseKey}
		l.do("Quantize", func() error { return l.d.Quantize(op) }, op.Rowwise.Data)
		up := 0
		for r := 1; r < n; r++ {
			if l.bytesOf(op.Rowwise).data[r]&1 == 1 {
				up++
			}
		}
		if rate := float64(up) / n; math.Abs(rate-5.0/16) > 0.03 {
			l.fault("Quantize in %s: %v of the elements at 5/16 were rounded up", e, rate)
		}
		l.drop()
	}
}

// quantizeTally counts the contents of a tally again.
func quantizeTally(l *lab) {
	for i, e := range encodings() {
		const rows, cols = 33, 70
		title := fmt.Sprintf("the tally of Quantize in %s", e)
		words := l.putInts("Tally", make([]int32, 3*kernels.TallyWords))
		var amax, least, most float32
		var nonFinite, saturated, underflowed int64
		for round := range 3 {
			x := l.ranging(rows, cols, round == i%3)
			op := kernels.Quantize{
				X: l.put("X", x), Rows: rows, Cols: cols, Rowwise: l.none(e, rows, cols),
				Columnwise: l.none(e, cols, rows), Tally: kernels.Cell{Buffer: words, Index: 1},
			}
			if e.Scaling == kernels.PerTensor {
				op.Scale = kernels.Cell{Buffer: l.put("Scale", []float32{1e-6, 1, 5000}), Index: round}
			}
			if round == 2 {
				op.Rowwise = kernels.Quantized{}
			}
			l.do(title, func() error { return l.d.Quantize(op) }, op.Rowwise.Data, op.Columnwise.Data, words)
			q := op.Rowwise
			if round == 2 {
				q, x = op.Columnwise, transposed(x, rows, cols)
			}
			frozen := float32(0)
			if e.Scaling == kernels.PerTensor {
				frozen = []float32{1e-6, 1, 5000}[round]
			}
			for _, s := range l.check(title, op, q, x, frozen) {
				if least == 0 || s < least {
					least = s
				}
				most = max(most, s)
			}
			m := l.bytesOf(q)
			magnitudes, sign := values(e.Format)
			top := magnitudes[len(magnitudes)-1]
			beyond := top + (top-magnitudes[len(magnitudes)-2])/2 // above beyond, or at beyond if the top code is odd, an element saturates
			odd := (len(magnitudes)-1)%2 == 1
			for k, v := range x {
				amax = max(amax, float32(math.Abs(float64(v))))
				if v != v || math.IsInf(float64(v), 0) {
					nonFinite++
					continue
				}
				blockScale, above := m.scales(k/m.cols, k%m.cols)
				if above != above {
					above = 1 // a block of NaN counts as if its scale were 1
				}
				scale := float64(1 / above)
				if m.Scaling == kernels.NV16 {
					scale = float64(min(1/float32(blockScale*above), math.MaxFloat32))
				} else if m.Scaling == kernels.PerTensor {
					scale = float64(frozen)
				}
				scaled := math.Abs(float64(float32(float64(v) * scale)))
				if scaled > beyond || odd && scaled == beyond {
					saturated++
				}
				if code := encoded(e.Format, float32(float64(v)*scale)); code&^sign == 0 && v != 0 {
					underflowed++
				}
			}
		}
		bits := func(x float32) int32 { return int32(math.Float32bits(x) &^ (1 << 31)) }
		want := make([]int32, 3*kernels.TallyWords)
		copy(want[kernels.TallyWords:], []int32{bits(amax), bits(least), bits(most), int32(nonFinite), int32(saturated), 0, int32(underflowed), 0})
		got := make([]int32, len(want))
		l.must("ReadInt32", l.d.ReadInt32(got, words))
		if amax != amax && got[kernels.TallyWords] > 0x7f800000 {
			got[kernels.TallyWords] = want[kernels.TallyWords] // all NaNs count as equal
		}
		if !slices.Equal(got, want) {
			l.fault("%s is %v, want %v", title, got, want)
		}
		l.drop()
	}
}

// quantizeFullTally checks the limits of the counters: the number of non-finite elements stops
// at the greatest int32, the others carry into their upper words.
func quantizeFullTally(l *lab) {
	nan := float32(math.NaN())
	x := []float32{nan, 1e6, nan, -1e6, 1e-9, nan, 1e-9}
	for _, c := range [][2]int32{{0, 3}, {math.MaxInt32 - 3, math.MaxInt32}, {math.MaxInt32 - 2, math.MaxInt32}, {math.MaxInt32, math.MaxInt32}} {
		words := []int32{0, 0, 0, c[0], -1, 4, -2, 5}
		op := kernels.Quantize{
			X: l.put("X", x), Rows: 1, Cols: len(x), Rowwise: l.none(kernels.Encoding{}, 1, len(x)),
			Scale: kernels.Cell{Buffer: l.put("Scale", []float32{1})}, Tally: kernels.Cell{Buffer: l.putInts("Tally", words)},
		}
		l.do("Quantize", func() error { return l.d.Quantize(op) }, op.Rowwise.Data, op.Tally.Buffer)
		got := make([]int32, len(words))
		l.must("ReadInt32", l.d.ReadInt32(got, op.Tally.Buffer))
		if want := []int32{c[1], 1, 5, 0, 6}; !slices.Equal(got[3:], want) {
			l.fault("a tally of %v and then 3 elements that are not finite, 2 that saturate and 2 that become zero is %v, want %v", words[3:], got[3:], want)
		}
		l.drop()
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

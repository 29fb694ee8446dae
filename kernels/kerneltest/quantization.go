package kerneltest

import (
	"fmt"
	"math"
	"slices"

	"github.com/weir-ml/weir/kernels"
)

func quantizationCases() []Case {
	return []Case{
		newCase("quantize", false, quantize),
		newCase("quantize/stochastic", false, quantizeStochastic),
		newCase("quantize/tally", false, quantizeTally),
		newCase("quantize/refused", true, quantizeRefused),
		newCase("quantized matmul", false, quantizedProduct),
	}
}

// encodings are all that go together.
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

// none makes room for a matrix.
func (l *lab) none(e kernels.Encoding, rows, cols int) kernels.Quantized {
	fill := make([]byte, e.Bytes(rows, cols))
	for i := range fill {
		fill[i] = 0xa5
	}
	return kernels.Quantized{Data: l.putBytes("a quantized matrix", fill), Encoding: e, Rows: rows, Cols: cols}
}

// bytesOf reads a matrix.
func (l *lab) bytesOf(q kernels.Quantized) *matrixBytes {
	data := make([]byte, q.Data.N)
	l.must("ReadUint8", l.d.ReadUint8(data, q.Data))
	return newMatrixBytes(q.Encoding, q.Rows, q.Cols, data)
}

// quantizeShapes are rows and columns, around blocks of every size.
var quantizeShapes = [][2]int{{1, 1}, {3, 5}, {2, 16}, {17, 33}, {1, 300}, {130, 129}}

// ranging draws numbers whose magnitudes differ from row to row and from block to block,
// with zeros, and where wild is set with what is not finite.
func (l *lab) ranging(rows, cols int, wild bool) []float32 {
	x := l.normal(rows*cols, 1)
	for i := range x {
		x[i] *= float32(math.Exp2(float64((i/cols*7+i%cols/16*5)%60 - 30)))
	}
	odd := []float32{0, float32(math.Copysign(0, -1)), 1e-42, -3e38}
	if wild {
		odd = append(odd, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()))
	}
	for i, v := range odd {
		if len(x) > 20 {
			x[(i*len(x)/len(odd)+l.rng.IntN(5))%len(x)] = v
		}
	}
	return x
}

// transposed returns the transpose of rows×cols elements.
func transposed[E any](x []E, rows, cols int) []E {
	y := make([]E, len(x))
	for r := range rows {
		for c := range cols {
			y[c*rows+r] = x[r*cols+c]
		}
	}
	return y
}

// amaxOf returns the greatest magnitude of some elements, NaN where one is.
func amaxOf(x []float32, at func(yield func(i int) bool)) (amax float32) {
	for i := range at {
		amax = max(amax, float32(math.Abs(float64(x[i]))))
	}
	return amax
}

// check compares a quantized matrix with the source, whose shape it has, and returns the
// scales that elements were multiplied with.
func (l *lab) check(what string, op kernels.Quantize, q kernels.Quantized, x []float32, frozen float32) (multiplied []float32) {
	m := l.bytesOf(q)
	if m.bytesOf() != len(m.data) {
		l.fault("%s: the matrix has %d bytes, want %d", what, len(m.data), m.bytesOf())
		return nil
	}
	magnitudes, _ := values(m.Format)
	most := float32(magnitudes[len(magnitudes)-1])
	everything := func(yield func(i int) bool) {
		for i := range x {
			if !yield(i) {
				return
			}
		}
	}
	tensor := max(0x1p-126, scaleFor(amaxOf(x, everything), float32(math.Ldexp(float64(most), -op.Margin)), op.Epsilon, op.AnyScale))
	if m.Scaling == kernels.NV16 {
		tensor = scaleFor(amaxOf(x, everything), 6*448, 0, true)
	}
	if frozen != 0 {
		tensor = frozen
	}
	if once := m.Scaling == kernels.PerTensor || m.Scaling == kernels.NV16; once && m.float(0) != 1/tensor {
		l.fault("%s: the tensor's scale is %v, want %v", what, m.float(0), 1/tensor)
	}
	known := map[[2]int]scales{}
	for r := range m.rows {
		for c := range m.cols {
			place := [2]int{r, c / max(m.block(), 1)}
			if m.Scaling == kernels.Tiles128 {
				place[0] = r / 128
			}
			if _, ok := known[place]; !ok {
				known[place] = m.expected(op, x, r, c, tensor)
			}
			scale, divisor := known[place].scale, known[place].divisor
			within, above := m.scales(r, c)
			if m.Scaling != kernels.NV16 {
				within = above
			}
			if math.Float32bits(within) != math.Float32bits(divisor) && within == within {
				l.fault("%s: the scale of element %d,%d is %v, want %v", what, r, c, within, divisor)
				return nil
			}
			if within != within && divisor == divisor || math.IsNaN(float64(divisor)) && m.code(r, c) != 0x7f {
				l.fault("%s: element %d,%d is %#x with scale %v, want a block that is NaN: %t", what, r, c, m.code(r, c), within, divisor != divisor)
				return nil
			}
			v := x[r*m.cols+c]
			if want := encoded(m.Format, v*scale); divisor == divisor && !op.Stochastic && m.code(r, c) != want {
				l.fault("%s: element %d,%d, %v with scale %v, is %#x, want %#x", what, r, c, v, scale, m.code(r, c), want)
				return nil
			}
			if op.Stochastic && divisor == divisor && v == v {
				lower, upper, part := around(m.Format, v*scale)
				at, want := r*op.Cols+c, lower
				if q.Data != op.Rowwise.Data {
					at = c*op.Cols + r
				}
				if math.Floor(part*0x1p32)+float64(op.Key.Draw(uint64(at / 4))[at%4]) >= 0x1p32 {
					want = upper
				}
				if got := m.code(r, c); got != want {
					l.fault("%s: element %d,%d, %v with scale %v, is %#x, want %#x of %#x and %#x", what, r, c, v, scale, got, want, lower, upper)
					return nil
				}
			}
			if m.Scaling == kernels.NV16 {
				scale = tensor
			}
			if none := known[place].none; !none && !slices.Contains(multiplied, scale) {
				multiplied = append(multiplied, scale)
			}
		}
	}
	return multiplied
}

// scales are what the elements of a block are multiplied with, and what is stored; none
// says that it is no scale because the block is zero or not finite.
type scales struct {
	scale, divisor float32
	none           bool
}

// expected returns the scales of the block of an element.
func (m *matrixBytes) expected(op kernels.Quantize, x []float32, r, c int, tensor float32) scales {
	block := func(yield func(i int) bool) {
		top, bottom, left := r, r+1, c/m.block()*m.block()
		if m.Scaling == kernels.Tiles128 {
			top, bottom = r/128*128, min(r/128*128+128, m.rows)
		}
		for i := top; i < bottom; i++ {
			for j := left; j < min(left+m.block(), m.cols); j++ {
				if !yield(i*m.cols + j) {
					return
				}
			}
		}
	}
	most := float32(tables[m.Format][len(tables[m.Format])-1])
	switch m.Scaling {
	case kernels.Rows128, kernels.Tiles128:
		amax := amaxOf(x, block)
		scale := scaleFor(amax, most, op.Epsilon, op.AnyScale)
		return scales{scale, 1 / scale, !(max(amax, op.Epsilon) > 0 && amax <= math.MaxFloat32)}
	case kernels.MX32:
		amax := amaxOf(x, block)
		divisor := mxDivisor(amax, most, op.Down)
		return scales{float32(1 / float64(divisor)), divisor, !(amax > 0 && amax <= math.MaxFloat32)}
	case kernels.NV16:
		amax := float32(0)
		for i := range block {
			if a := float32(math.Abs(float64(x[i]))); a > amax {
				amax = a
			}
		}
		code := encoded(kernels.E4M3, amax*float32(tensor*float32(1.0/6)))
		divisor := float32(decoded(kernels.E4M3, code))
		return scales{min(1/float32(divisor*float32(1/tensor)), math.MaxFloat32), divisor, false}
	}
	return scales{tensor, 1 / tensor, false}
}

// mxDivisor returns the power of two of a block of MX32.
func mxDivisor(amax, most float32, down bool) float32 {
	if amax != amax || math.IsInf(float64(amax), 0) {
		return float32(math.NaN())
	}
	exponent := -127
	if down {
		_, a := math.Frexp(float64(amax))
		_, b := math.Frexp(float64(most))
		exponent = max(exponent, a-b)
		if amax == 0 {
			exponent = -127
		}
	} else {
		for math.Ldexp(float64(most), exponent) < float64(amax) {
			exponent++
		}
	}
	return float32(math.Ldexp(1, exponent))
}

// rules are the ways to quantize that an encoding has.
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
				what := fmt.Sprintf("Quantize %d×%d in %s, %+v", rows, cols, e, op)
				op.X, op.Rows, op.Cols = l.put("X", x), rows, cols
				op.Rowwise, op.Columnwise = l.none(e, rows, cols), l.none(e, cols, rows)
				l.do(what, func() error { return l.d.Quantize(op) }, op.Rowwise.Data, op.Columnwise.Data)
				l.check(what+": Rowwise", op, op.Rowwise, x, 0)
				l.check(what+": Columnwise", op, op.Columnwise, transposed(x, rows, cols), 0)
				both := l.bytesOf(op.Columnwise)

				// Alone it is the same, to the bit.
				alone := op
				alone.Rowwise, alone.Columnwise = kernels.Quantized{}, l.none(e, cols, rows)
				l.do(what, func() error { return l.d.Quantize(alone) }, alone.Columnwise.Data)
				l.sameBytes(what+": Columnwise alone", l.bytesOf(alone.Columnwise), both)
				l.decodes(what, op.Rowwise)
				l.drop()
			}
		}
	}
	l.frozen()
}

// frozen quantizes with a scale from a slab.
func (l *lab) frozen() {
	slab := []float32{3, 0.5, 1000, 1e-20}
	for _, f := range []kernels.Format{kernels.E4M3, kernels.E5M2} {
		for i, scale := range slab {
			e := kernels.Encoding{Format: f}
			x := l.ranging(9, 21, i == 1)
			op := kernels.Quantize{
				X: l.put("X", x), Rows: 9, Cols: 21, Scale: kernels.Cell{Buffer: l.put("Scale", slab), Index: i},
				Rowwise: l.none(e, 9, 21), Columnwise: l.none(e, 21, 9),
			}
			what := fmt.Sprintf("Quantize in %s with scale %v", e, scale)
			l.do(what, func() error { return l.d.Quantize(op) }, op.Rowwise.Data, op.Columnwise.Data)
			l.check(what, op, op.Rowwise, x, scale)
			l.check(what+": Columnwise", op, op.Columnwise, transposed(x, 9, 21), scale)
			l.drop()
		}
	}
}

// sameBytes compares codes and scales, not what lies between.
func (l *lab) sameBytes(what string, got, want *matrixBytes) {
	for r := range want.rows {
		for c := range want.cols {
			a, b := got.scales(r, c)
			x, y := want.scales(r, c)
			if got.code(r, c) != want.code(r, c) || math.Float32bits(a) != math.Float32bits(x) || math.Float32bits(b) != math.Float32bits(y) && b == b {
				l.fault("%s: element %d,%d is not the same", what, r, c)
				return
			}
		}
	}
}

// decodes checks Dequantize.
func (l *lab) decodes(what string, q kernels.Quantized) {
	m := l.bytesOf(q)
	want := make([]float32, q.Rows*q.Cols)
	for r := range q.Rows {
		for c := range q.Cols {
			want[r*q.Cols+c] = m.value(r, c)
		}
	}
	dst, turned := l.result("dst", len(want)), l.result("dst", len(want))
	l.do(what, func() error { return l.d.Dequantize(dst, q, false) }, dst)
	l.do(what, func() error { return l.d.Dequantize(turned, q, true) }, turned)
	l.exactlyOrNaN(what+": decoded", l.read(dst), want)
	l.exactlyOrNaN(what+": decoded and transposed", l.read(turned), transposed(want, q.Rows, q.Cols))
}

// exactlyOrNaN is exactly, where one NaN is as good as another.
func (l *lab) exactlyOrNaN(what string, got, want []float32) {
	for i, w := range want {
		if math.Float32bits(got[i]) != math.Float32bits(w) && (w == w || got[i] == got[i]) {
			l.fault("%s: element %d is %v, want exactly %v", what, i, got[i], w)
			return
		}
	}
}

// quantizeStochastic checks that the draw of an element takes one of two neighbours, in
// both orientations, and each as often as it should.
func quantizeStochastic(l *lab) {
	for _, e := range encodings() {
		for _, s := range [][2]int{{3, 5}, {40, 130}, {130, 31}} {
			rows, cols := s[0], s[1]
			what := fmt.Sprintf("Quantize %d×%d in %s, stochastic", rows, cols, e)
			x := l.ranging(rows, cols, false)
			op := kernels.Quantize{
				X: l.put("X", x), Rows: rows, Cols: cols, Rowwise: l.none(e, rows, cols), Columnwise: l.none(e, cols, rows),
				Stochastic: true, Key: baseKey,
			}
			l.do(what, func() error { return l.d.Quantize(op) }, op.Rowwise.Data, op.Columnwise.Data)
			l.check(what+": Rowwise", op, op.Rowwise, x, 0)
			l.check(what+": Columnwise", op, op.Columnwise, transposed(x, rows, cols), 0)
			if e.Scaling == kernels.PerTensor || e.Scaling == kernels.Tiles128 {
				a, b := l.bytesOf(op.Rowwise), l.bytesOf(op.Columnwise)
				for i := range x {
					if a.code(i/cols, i%cols) != b.code(i%cols, i/cols) {
						l.fault("%s: element %d depends on the orientation", what, i)
						break
					}
				}
			}
			l.drop()
		}
		// 1 + 5/16 of the step to the next value, in every format.
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
			l.fault("Quantize in %s: %v of what is 5/16 above went up", e, rate)
		}
		l.drop()
	}
}

// quantizeTally counts again what a tally says.
func quantizeTally(l *lab) {
	for i, e := range encodings() {
		const rows, cols = 33, 70
		what := fmt.Sprintf("the tally of Quantize in %s", e)
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
			l.do(what, func() error { return l.d.Quantize(op) }, op.Rowwise.Data, op.Columnwise.Data, words)
			q := op.Rowwise
			if round == 2 {
				q, x = op.Columnwise, transposed(x, rows, cols)
			}
			frozen := float32(0)
			if e.Scaling == kernels.PerTensor {
				frozen = []float32{1e-6, 1, 5000}[round]
			}
			for _, s := range l.check(what, op, q, x, frozen) {
				if least == 0 || s < least {
					least = s
				}
				most = max(most, s)
			}
			m := l.bytesOf(q)
			magnitudes, sign := values(e.Format)
			top := magnitudes[len(magnitudes)-1]
			beyond := top + (top-magnitudes[len(magnitudes)-2])/2 // what is above it, or on it where the top code is odd, is cut
			odd := (len(magnitudes)-1)%2 == 1
			for k, v := range x {
				amax = max(amax, float32(math.Abs(float64(v))))
				if v != v || math.IsInf(float64(v), 0) {
					nonFinite++
					continue
				}
				within, above := m.scales(k/m.cols, k%m.cols)
				if above != above {
					above = 1 // a block that is NaN counts as if its scale were 1
				}
				scale := float64(1 / above)
				if m.Scaling == kernels.NV16 {
					scale = float64(min(1/float32(within*above), math.MaxFloat32))
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
			got[kernels.TallyWords] = want[kernels.TallyWords] // one NaN is as good as another
		}
		if !slices.Equal(got, want) {
			l.fault("%s is %v, want %v", what, got, want)
		}
		l.drop()
	}
}

// quantizeRefused tries what cannot be.
func quantizeRefused(l *lab) {
	e := kernels.Encoding{Format: kernels.E4M3, Scaling: kernels.MX32}
	op := kernels.Quantize{X: l.put("X", l.normal(64, 1)), Rows: 2, Cols: 32, Rowwise: l.none(e, 2, 32), Columnwise: l.none(e, 32, 2)}
	slab := kernels.Cell{Buffer: l.put("Scale", []float32{1, 2})}
	tally := l.putInts("Tally", make([]int32, 12))
	for _, c := range []struct {
		what   string
		want   error
		change func(op *kernels.Quantize)
	}{
		{"without a result", kernels.ErrShape, func(op *kernels.Quantize) { op.Rowwise, op.Columnwise = kernels.Quantized{}, kernels.Quantized{} }},
		{"into an encoding that there is not", kernels.ErrShape, func(op *kernels.Quantize) { op.Rowwise.Encoding.Scaling = kernels.NV16 }},
		{"into a format that there is not", kernels.ErrShape, func(op *kernels.Quantize) { op.Rowwise.Encoding.Format = 9 }},
		{"into a scaling that there is not", kernels.ErrShape, func(op *kernels.Quantize) { op.Rowwise.Encoding.Scaling = 9 }},
		{"into two encodings", kernels.ErrShape, func(op *kernels.Quantize) { op.Columnwise.Encoding.Format = kernels.E5M2 }},
		{"into one buffer", kernels.ErrShape, func(op *kernels.Quantize) { op.Columnwise.Data = op.Rowwise.Data }},
		{"with the sides changed", kernels.ErrShape, func(op *kernels.Quantize) { op.Rowwise.Rows, op.Rowwise.Cols = 32, 2 }},
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
		l.refuse("Quantize "+c.what, c.want, func() error { return l.d.Quantize(changed) })
	}
	if n := (kernels.Encoding{}).Bytes(math.MaxInt/2, 8); n != math.MaxInt {
		l.fault("a matrix that no memory holds has %d bytes", n)
	}
	if n := (kernels.Encoding{Scaling: kernels.NV16}).Bytes(2, 2) + (kernels.Encoding{}).Bytes(0, 3) + (kernels.Encoding{}).Bytes(3, -1); n != 0 {
		l.fault("matrices that cannot be have %d bytes", n)
	}
}

// quantizedProduct compares with the definition, to the bit, and with float64.
func quantizedProduct(l *lab) {
	all := encodings()
	for i, s := range [][3]int{{1, 1, 1}, {3, 5, 31}, {15, 33, 200}, {2, 40, 513}, {30, 17, 260}} {
		for j, a := range all {
			for k, b := range all {
				if i > 1 && (i+j+k)%8 != 0 && (a != b || i > 4) {
					continue
				}
				op := kernels.QuantizedMatMul{M: s[0], N: s[1], K: s[2], Accumulate: (i+j+k)%2 == 0}
				l.product(op, a, b, (j+k)%3 == 0, (i+j)%5 == 0)
			}
		}
	}
}

// quantized returns a matrix of random numbers.
func (l *lab) quantized(e kernels.Encoding, rows, cols int) kernels.Quantized {
	q := kernels.Quantize{X: l.put("X", l.normal(rows*cols, 1)), Rows: rows, Cols: cols, Rowwise: l.none(e, rows, cols)}
	l.do("Quantize", func() error { return l.d.Quantize(q) }, q.Rowwise.Data)
	return q.Rowwise
}

func (l *lab) product(op kernels.QuantizedMatMul, a, b kernels.Encoding, biased, wild bool) {
	what := fmt.Sprintf("QuantizedMatMul %d×%d×%d of %s and %s, Accumulate %t", op.M, op.N, op.K, a, b, op.Accumulate)
	quantized := func(e kernels.Encoding, rows int) kernels.Quantized {
		if !wild {
			return l.quantized(e, rows, op.K)
		}
		x := l.ranging(rows, op.K, true)
		q := kernels.Quantize{X: l.put("X", x), Rows: rows, Cols: op.K, Rowwise: l.none(e, rows, op.K)}
		l.do("Quantize", func() error { return l.d.Quantize(q) }, q.Rowwise.Data)
		return q.Rowwise
	}
	start := l.normal(op.M*op.N, 1)
	op.A, op.B = quantized(a, op.M), quantized(b, op.N)
	op.Workspace = l.result("Workspace", l.d.QuantizedWorkspace(op.M, op.N, op.K))
	if op.C = l.result("C", len(start)); op.Accumulate {
		op.C = l.put("C", start)
	}
	x, y := l.bytesOf(op.A), l.bytesOf(op.B)
	want := x.product(y, start, op.Accumulate)
	if biased {
		bias := l.normal(op.N, 1)
		op.Bias = l.put("Bias", bias)
		for i := range want {
			want[i] += bias[i%op.N]
		}
	}
	l.do(what, func() error { return l.d.QuantizedMatMul(op) }, op.C, op.Workspace)
	l.exactlyOrNaN(what, l.read(op.C), want)
	l.drop()
}

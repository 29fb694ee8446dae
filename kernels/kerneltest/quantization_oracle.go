package kerneltest

import (
	"math"
	"slices"

	"github.com/weir-ml/weir/kernels"
)

// none allocates a matrix without quantizing into it.
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

// quantizeShapes are rows and columns around blocks of every size.
var quantizeShapes = [][2]int{{1, 1}, {3, 5}, {2, 16}, {17, 33}, {1, 300}, {130, 129}}

// ranging draws numbers whose magnitudes differ from row to row and from block to block, with
// zeros, and if wild is set with non-finite numbers.
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

// atEdges draws from edges, only finite numbers unless wild is set.
func (l *lab) atEdges(n int, wild bool) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = edges[l.rng.IntN(len(edges))]
		if !wild && !(math.Abs(float64(x[i])) <= 448) {
			x[i] = 448
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

// amaxOf returns the greatest magnitude of the elements that at yields, or NaN if one is NaN.
func amaxOf(x []float32, at func(yield func(i int) bool)) (amax float32) {
	for i := range at {
		amax = max(amax, float32(math.Abs(float64(x[i]))))
	}
	return amax
}

// check compares a quantized matrix with the source, which has the same shape, and returns the
// scales that the elements were multiplied by.
func (l *lab) check(title string, op kernels.Quantize, q kernels.Quantized, x []float32, frozen float32) (multiplied []float32) {
	m := l.bytesOf(q)
	if m.bytesOf() != len(m.data) {
		l.fault("%s: the matrix has %d bytes, want %d", title, len(m.data), m.bytesOf())
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
		l.fault("%s: the tensor's scale is %v, want %v", title, m.float(0), 1/tensor)
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
			blockScale, above := m.scales(r, c)
			if m.Scaling != kernels.NV16 {
				blockScale = above
			}
			if math.Float32bits(blockScale) != math.Float32bits(divisor) && blockScale == blockScale {
				l.fault("%s: the scale of element %d,%d is %v, want %v", title, r, c, blockScale, divisor)
				return nil
			}
			if blockScale != blockScale && divisor == divisor || math.IsNaN(float64(divisor)) && m.code(r, c) != 0x7f {
				l.fault("%s: element %d,%d is %#x with scale %v, want a block that is NaN: %t", title, r, c, m.code(r, c), blockScale, divisor != divisor)
				return nil
			}
			v := x[r*m.cols+c]
			if want := encoded(m.Format, v*scale); divisor == divisor && !op.Stochastic && m.code(r, c) != want {
				l.fault("%s: element %d,%d, %v with scale %v, is %#x, want %#x", title, r, c, v, scale, m.code(r, c), want)
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
					l.fault("%s: element %d,%d, %v with scale %v, is %#x, want %#x of %#x and %#x", title, r, c, v, scale, got, want, lower, upper)
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

// scales are the factor of the elements of a block, and the scale that is stored. none is set
// if the block has no scale because it is all zero or not finite.
type scales struct {
	scale, divisor float32
	none           bool
}

// expected returns the scales of an element's block.
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

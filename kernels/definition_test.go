package kernels_test

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

// The definition of low precision computes the values of a format from its fields, searches for
// the nearest one, and reads a matrix byte by byte.

// tables holds the magnitudes of each format in the order of their codes.
var tables = [...][]float64{table(kernels.E4M3), table(kernels.E5M2), table(kernels.E2M1)}

// values returns the magnitudes of a format and its sign bit.
func values(f kernels.Format) (magnitudes []float64, sign byte) {
	if f == kernels.E2M1 {
		return tables[f], 8
	}
	return tables[f], 0x80
}

func table(f kernels.Format) (magnitudes []float64) {
	mantissa, bias, last := 3, 7, 0x7e
	switch f {
	case kernels.E5M2:
		mantissa, bias, last = 2, 15, 0x7b
	case kernels.E2M1:
		mantissa, bias, last = 1, 1, 7
	}
	for code := range last + 1 {
		exponent, fraction := code>>mantissa, float64(code&(1<<mantissa-1))
		if exponent > 0 {
			fraction += float64(int(1) << mantissa)
		}
		magnitudes = append(magnitudes, math.Ldexp(fraction, max(exponent, 1)-bias-mantissa))
	}
	return magnitudes
}

// decoded returns the value of a code.
func decoded(f kernels.Format, code byte) float64 {
	magnitudes, sign := values(f)
	v := math.NaN()
	if at := code &^ sign; int(at) < len(magnitudes) {
		v = magnitudes[at]
	} else if f == kernels.E5M2 && at == 0x7c {
		v = math.Inf(1)
	}
	if code&sign != 0 {
		return -v
	}
	return v
}

// around returns the codes of the magnitudes below and above x, which is not NaN, and its
// distance from the lower one as a fraction of the distance between them. If no magnitude is
// above x, both codes are the lower one.
func around(f kernels.Format, x float32) (lower, upper byte, part float64) {
	magnitudes, sign := values(f)
	a := math.Abs(float64(x))
	at, exact := slices.BinarySearch(magnitudes, a)
	if !exact {
		at--
	}
	lower, upper = byte(at), byte(at)
	if at+1 < len(magnitudes) {
		upper++
		part = (a - magnitudes[at]) / (magnitudes[at+1] - magnitudes[at])
	}
	if math.Signbit(float64(x)) {
		lower, upper = lower|sign, upper|sign
	}
	return lower, upper, part
}

// encoded returns the code of the value nearest to x.
func encoded(f kernels.Format, x float32) byte {
	_, sign := values(f)
	if x != x {
		nan := byte(0x7f)
		if f == kernels.E2M1 {
			nan = 7
		}
		if math.Signbit(float64(x)) {
			nan |= sign
		}
		return nan
	}
	lower, upper, part := around(f, x)
	if part > 0.5 || part == 0.5 && lower&1 == 1 {
		return upper
	}
	return lower
}

// scaleFor returns the factor for a block whose greatest magnitude is amax.
func scaleFor(amax, most, epsilon float32, any bool) float32 {
	amax = max(amax, epsilon)
	if amax == 0 || amax != amax || math.IsInf(float64(amax), 0) {
		return 1
	}
	scale := min(most/amax, math.MaxFloat32)
	if !any {
		_, exponent := math.Frexp(float64(scale))
		scale = float32(math.Ldexp(1, exponent-1))
	}
	return scale
}

// storedMatrix is a quantized matrix in the layout that its encoding defines.
type storedMatrix struct {
	kernels.Encoding
	rows, cols   int
	data         []byte
	stride, from int // bytes per row; offset of the scales
	across       int // blocks or tiles along a row
}

func newStoredMatrix(e kernels.Encoding, rows, cols int, data []byte) *storedMatrix {
	m := &storedMatrix{Encoding: e, rows: rows, cols: cols, data: data, stride: cols, across: 1}
	if e.Format == kernels.E2M1 {
		m.stride = (cols + 1) / 2
	}
	m.from = (rows*m.stride + 3) / 4 * 4
	if block := m.block(); block > 0 {
		m.across = (cols + block - 1) / block
	}
	return m
}

// block returns the number of elements of a row that share a scale, or 0 if all do.
func (m *storedMatrix) block() int { return [...]int{0, 128, 128, 32, 16}[m.Scaling] }

// code returns the code of an element.
func (m *storedMatrix) code(r, c int) byte {
	if m.Format == kernels.E2M1 {
		return m.data[r*m.stride+c/2] >> (4 * (c % 2)) & 15
	}
	return m.data[r*m.stride+c]
}

// float returns float32 number i of the scales.
func (m *storedMatrix) float(i int) float32 {
	return math.Float32frombits(binary.NativeEndian.Uint32(m.data[m.from+4*i:]))
}

// scales returns the factors by which decoding multiplies an element: the scale of its block,
// and the scale of the tensor above it, or 1 if there is none.
func (m *storedMatrix) scales(r, c int) (block, above float32) {
	switch m.Scaling {
	case kernels.Rows128:
		return 1, m.float(r*m.across + c/128)
	case kernels.Tiles128:
		return 1, m.float(r/128*m.across + c/128)
	case kernels.MX32:
		code := m.data[m.from+r*m.across+c/32]
		if code == 255 {
			return 1, float32(math.NaN())
		}
		return 1, float32(math.Ldexp(1, int(code)-127))
	case kernels.NV16:
		return float32(decoded(kernels.E4M3, m.data[m.from+4+r*m.across+c/16])), m.float(0)
	}
	return 1, m.float(0)
}

// bytesOf returns the size of a matrix.
func (m *storedMatrix) bytesOf() int {
	switch m.Scaling {
	case kernels.Rows128:
		return m.from + 4*m.rows*m.across
	case kernels.Tiles128:
		return m.from + 4*((m.rows+127)/128)*m.across
	case kernels.MX32:
		return m.from + m.rows*m.across
	case kernels.NV16:
		return m.from + 4 + m.rows*m.across
	}
	return m.from + 4
}

// value returns a decoded element.
func (m *storedMatrix) value(r, c int) float32 {
	block, above := m.scales(r, c)
	scale := above
	if m.Scaling == kernels.NV16 {
		scale = finite(block, above)
	}
	return finite(float32(decoded(m.Format, m.code(r, c))), scale)
}

// finite returns the product of two numbers, limited to the greatest float32 if neither is
// infinite.
func finite(x, y float32) float32 {
	product := x * y
	infinite := func(x float32) bool { return math.IsInf(float64(x), 0) }
	if infinite(product) && !infinite(x) && !infinite(y) {
		return float32(math.Copysign(math.MaxFloat32, float64(product)))
	}
	return product
}

// product returns a·bᵀ by the definition of QuantizedMatMul.
func (a *storedMatrix) product(b *storedMatrix, c []float32, accumulate bool) []float32 {
	span := 128
	if a.Scaling == kernels.MX32 || b.Scaling == kernels.MX32 {
		span = 32
	}
	raw := func(m *storedMatrix, r int) (values []float64, above []float32) {
		for k := range m.cols {
			block, scale := m.scales(r, k)
			values = append(values, decoded(m.Format, m.code(r, k))*float64(block))
			if k%span == 0 {
				above = append(above, scale)
			}
		}
		return values, above
	}
	out := make([]float32, a.rows*b.rows)
	for j := range b.rows {
		y, scaleB := raw(b, j)
		for i := range a.rows {
			x, scaleA := raw(a, i)
			var total float32
			if accumulate {
				total = c[i*b.rows+j]
			}
			for s := range scaleA {
				var part float32
				for k := s * span; k < min((s+1)*span, a.cols); k++ {
					// The product is exact: elements and block scales have 6 bits together. The sum is exact in
					// float64 if its operands differ by less than 2^29. If it is not, the second rounding still
					// gives the float32 nearest to the exact sum, since 53 bits >= 2*24 + 2.
					part = float32(float64(part) + x[k]*y[k])
				}
				total += float32(float32(part*scaleA[s]) * scaleB[s])
			}
			out[i*b.rows+j] = total
		}
	}
	return out
}

// amaxOf returns the greatest magnitude of the elements of x at the indices that at yields, or NaN if one of them is NaN.
func amaxOf(x []float32, at func(yield func(i int) bool)) (amax float32) {
	for i := range at {
		amax = max(amax, float32(math.Abs(float64(x[i]))))
	}
	return amax
}

// check compares a quantized matrix with the source, which has the same shape. It returns the
// factors of the elements, and the scales that a tally counts. fixed is the given scale of the
// tensor, or 0.
func (b *bench) check(title string, op kernels.Quantize, q kernels.Quantized, x []float32, fixed float32) (factors, multiplied []float32) {
	m := b.matrix(q)
	require.Len(b, m.data, m.bytesOf(), title)
	magnitudes, _ := values(m.Format)
	most := float32(magnitudes[len(magnitudes)-1])
	amax := amaxOf(x, func(yield func(i int) bool) {
		for i := range x {
			if !yield(i) {
				return
			}
		}
	})
	tensor := max(0x1p-126, scaleFor(amax, float32(math.Ldexp(float64(most), -op.Margin)), op.Epsilon, op.AnyScale))
	if m.Scaling == kernels.NV16 {
		tensor = scaleFor(amax, 6*448, 0, true)
	}
	if fixed != 0 {
		tensor = fixed
	}
	if m.Scaling == kernels.PerTensor || m.Scaling == kernels.NV16 {
		require.Equal(b, 1/tensor, m.float(0), "%s: the tensor's scale", title)
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
			factors = append(factors, scale)
			got, above := m.scales(r, c)
			if m.Scaling != kernels.NV16 {
				got = above
			}
			code, v := m.code(r, c), x[r*m.cols+c]
			want := encoded(m.Format, v*scale)
			switch {
			case divisor != divisor:
				want = 0x7f
			case op.Stochastic && v == v:
				lower, upper, part := around(m.Format, v*scale)
				at := r*op.Cols + c
				if q.Data != op.Rowwise.Data {
					at = c*op.Cols + r
				}
				want = lower
				if math.Floor(part*0x1p32)+float64(op.Key.Draw(uint64(at / 4))[at%4]) >= 0x1p32 {
					want = upper
				}
			}
			if math.Float32bits(got) != math.Float32bits(divisor) && (got == got || divisor == divisor) || code != want {
				b.Fatalf("%s: element %d,%d, %v, is %#x with scale %v, want %#x with %v", title, r, c, v, code, got, want, divisor)
			}
			if m.Scaling == kernels.NV16 {
				scale = tensor
			}
			if !known[place].none && !slices.Contains(multiplied, scale) {
				multiplied = append(multiplied, scale)
			}
		}
	}
	return factors, multiplied
}

// scales holds the factor of the elements of a block (scale), and the scale that is stored (divisor).
// none is set if a tally counts no scale for the block: it is all zero without an epsilon, or not finite.
type scales struct {
	scale, divisor float32
	none           bool
}

// expected returns the scales of an element's block.
func (m *storedMatrix) expected(op kernels.Quantize, x []float32, r, c int, tensor float32) scales {
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

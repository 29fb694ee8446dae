package kernels_test

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

// FuzzQuantized quantizes, decodes and multiplies matrices of any shape in any encoding.
// Invalid calls return a typed error. Valid calls give the bits of plain Go with every
// instruction set, and a result close to the result in float64.
func FuzzQuantized(f *testing.F) {
	for _, e := range encodings {
		f.Add(3, 40, 5, uint8(e.Format), uint8(e.Scaling), uint8(e.Scaling)*3, uint64(e.Scaling))
		f.Add(64, 130, 33, uint8(e.Format), uint8(e.Scaling), uint8(0x47), uint64(7))
		f.Add(128, 144, 64, uint8(e.Format), uint8(e.Scaling), uint8(0x9), uint64(8))
	}
	f.Add(math.MaxInt, math.MaxInt, 1, uint8(0), uint8(4), uint8(0), uint64(0))
	f.Add(1<<(bits.UintSize/2), 1<<(bits.UintSize/2), 1, uint8(2), uint8(4), uint8(0), uint64(0))
	f.Add(-1, 4, -4, uint8(9), uint8(200), uint8(0), uint64(0))
	f.Fuzz(func(t *testing.T, rows, cols, n int, format, scaling, flags uint8, seed uint64) {
		const most = 160
		e := kernels.Encoding{Format: kernels.Format(format), Scaling: kernels.Scaling(scaling)}
		inRange := func(n int) bool { return n > 0 && n <= most }
		if !e.Valid() || !inRange(rows) || !inRange(cols) || !inRange(n) {
			refuseQuantized(t, e, rows, cols, n)
			return
		}
		c := quantizedCase{rows, cols, n, e, flags, seed}
		var want quantizedResult
		for i, set := range []kernels.Instructions{kernels.Portable, kernels.AVX2, kernels.AVX512, kernels.NEON} {
			if !set.Available() {
				continue
			}
			got := c.run(t, set)
			if i == 0 {
				want = got
				c.near(t, want)
				continue
			}
			for i, codes := range want.codes {
				elements := []int{rows * cols, rows * cols, n * cols}[i]
				require.Equal(t, c.oneNaN(codes, elements), c.oneNaN(got.codes[i], elements), set)
			}
			sameNumbers(t, want.decoded, got.decoded, "decoded, %s", set)
			sameNumbers(t, want.turned, got.turned, "decoded from columns, %s", set)
			sameNumbers(t, want.product, got.product, "product, %s", set)
			require.Equal(t, want.tally, got.tally, set)
		}
	})
}

// refuseQuantized requires typed errors for invalid encodings, and for shapes that do not fit
// the buffers: a buffer of seven numbers, and one with the bytes of three codes and a scale.
func refuseQuantized(t *testing.T, e kernels.Encoding, rows, cols, n int) {
	b := newBench(t)
	bytes := e.Bytes(rows, cols)
	require.GreaterOrEqual(t, bytes, 0)
	require.Equal(t, bytes > 0, e.Valid() && rows > 0 && cols > 0)
	x := b.random(7)
	data := b.room(kernels.Encoding{}, 3, 1).Data
	q := kernels.Quantized{Data: data, Encoding: e, Rows: rows, Cols: cols}
	require.ErrorIs(t, b.Quantize(kernels.Quantize{X: x, Rows: rows, Cols: cols, Rowwise: q}), kernels.ErrShape)
	require.ErrorIs(t, b.Dequantize(x, q, n%2 == 0), kernels.ErrShape)
	require.GreaterOrEqual(t, b.QuantizedWorkspace(rows, n, cols), 0)
	op := kernels.QuantizedMatMul{A: q, B: kernels.Quantized{Data: data, Encoding: e, Rows: n, Cols: cols}, C: b.random(7), Workspace: x, M: rows, N: n, K: cols}
	require.ErrorIs(t, b.QuantizedMatMul(op), kernels.ErrShape)
}

// quantizedCase has A of rows×cols and B of n×cols. Bits of flags: 0 stochastic, 1 any scale,
// 2 down, 3 an epsilon, 4 and 5 the kind of numbers, 6 accumulate.
type quantizedCase struct {
	rows, cols, n int
	e             kernels.Encoding
	flags         uint8
	seed          uint64
}

// epsilon is the epsilon of the cases that have one.
const epsilon = 1e-3

type quantizedResult struct {
	codes                    [3][]byte // of A, its transpose, B
	decoded, turned, product []float32
	b                        []float32 // B, decoded
	tally                    []int32
}

// numbers returns ordinary numbers, numbers of many magnitudes, arbitrary finite ones, or
// arbitrary bit patterns.
func (c *quantizedCase) numbers(n int, stream uint64) []float32 {
	r := rand.New(rand.NewPCG(c.seed, stream))
	x := make([]float32, n)
	for i := range x {
		switch c.flags >> 4 & 3 {
		case 0:
			x[i] = float32(r.NormFloat64())
		case 1:
			x[i] = float32(r.NormFloat64() * math.Exp2(float64(i/c.cols+i%c.cols/16*3)-20) * float64(r.IntN(3)))
		case 2:
			x[i] = math.Float32frombits(r.Uint32() &^ (1 << 30))
		default:
			x[i] = math.Float32frombits(r.Uint32())
		}
	}
	return x
}

func (c *quantizedCase) run(t *testing.T, set kernels.Instructions) (r quantizedResult) {
	d := newBenchWith(t, kernels.HostConfig{Instructions: set, Capacity: 16 << 20})
	a, b := d.put(c.numbers(c.rows*c.cols, 1)), d.put(c.numbers(c.n*c.cols, 2))
	tally := d.putInts(make([]int32, kernels.TallyWords))
	op := kernels.Quantize{
		X: a, Rows: c.rows, Cols: c.cols, Rowwise: d.room(c.e, c.rows, c.cols), Columnwise: d.room(c.e, c.cols, c.rows),
		Stochastic: c.flags&1 != 0, Key: kernels.Key{Seed: c.seed}, AnyScale: c.flags&2 != 0, Down: c.flags&4 != 0,
		Tally: kernels.Cell{Buffer: tally},
	}
	if c.flags&8 != 0 {
		op.Epsilon = epsilon
	}
	require.NoError(t, d.Quantize(op))
	right := op
	right.X, right.Rows, right.Rowwise, right.Columnwise, right.Tally = b, c.n, d.room(c.e, c.n, c.cols), kernels.Quantized{}, kernels.Cell{}
	require.NoError(t, d.Quantize(right))
	decode := func(q kernels.Quantized, transposed bool) []float32 {
		dst := d.put(make([]float32, q.Rows*q.Cols))
		require.NoError(t, d.Dequantize(dst, q, transposed))
		return d.read(dst)
	}
	product := d.put(c.numbers(c.rows*c.n, 3))
	require.NoError(t, d.QuantizedMatMul(kernels.QuantizedMatMul{
		A: op.Rowwise, B: right.Rowwise, C: product, M: c.rows, N: c.n, K: c.cols, Accumulate: c.flags&64 != 0,
		Workspace: d.put(make([]float32, d.QuantizedWorkspace(c.rows, c.n, c.cols))),
	}))
	r.codes = [3][]byte{d.bytes(op.Rowwise.Data), d.bytes(op.Columnwise.Data), d.bytes(right.Rowwise.Data)}
	r.decoded, r.turned, r.b = decode(op.Rowwise, false), decode(op.Columnwise, true), decode(right.Rowwise, false)
	r.product = d.read(product)
	r.tally = make([]int32, kernels.TallyWords)
	require.NoError(t, d.ReadInt32(r.tally, tally))
	return r
}

// oneNaN makes all NaNs among the codes of a matrix equal. The scales, which follow the codes,
// are unchanged.
func (c *quantizedCase) oneNaN(data []byte, codes int) []byte {
	for i, code := range data[:min(codes, len(data))] {
		if c.e.Format == kernels.E4M3 && code&0x7f == 0x7f || c.e.Format == kernels.E5M2 && code&0x7f > 0x7c {
			data[i] = 0x7f
		}
	}
	return data
}

// sameNumbers is sameBits, except that all NaNs count as equal.
func sameNumbers(t testing.TB, want, got []float32, title string, args ...any) {
	t.Helper()
	for i, w := range want {
		if w != w && got[i] != got[i] {
			got[i] = w
		}
	}
	sameBits(t, want, got, title, args...)
}

// near compares with float64: codes with their values, within the largest spacing of the
// format, and the product with the product of the decoded numbers.
func (c *quantizedCase) near(t *testing.T, r quantizedResult) {
	x := c.numbers(c.rows*c.cols, 1)
	var amax float64
	for _, v := range x {
		amax = max(amax, math.Abs(float64(v)))
	}
	if !(amax <= math.MaxFloat32) {
		return
	}
	if c.flags&8 != 0 && c.e.Scaling != kernels.MX32 && c.e.Scaling != kernels.NV16 {
		amax = max(amax, epsilon)
	}
	step := map[kernels.Format]float64{kernels.E4M3: 1. / 7, kernels.E5M2: 2. / 7, kernels.E2M1: 0.4}[c.e.Format] * amax
	if c.flags&1 == 0 {
		step /= 2
	}
	if c.flags&4 != 0 && c.e.Scaling == kernels.MX32 { // some saturate
		step = max(step, amax/7)
	}
	for i, v := range x {
		require.InDelta(t, float64(v), float64(r.decoded[i]), step+0x1p-100, "element %d", i)
		require.InDelta(t, float64(v), float64(r.turned[i]), step+0x1p-100, "element %d, from its column", i)
	}
	greatest := float64(c.e.Format.Max()) // the greatest factor of a product
	if c.e.Scaling == kernels.NV16 {
		greatest *= float64(kernels.E4M3.Max())
	}
	scaleB := 1.0 // at most
	for _, v := range r.b {
		scaleB = max(scaleB, 4*math.Abs(float64(v))/greatest)
	}
	start := c.numbers(c.rows*c.n, 3)
	for i := range r.product {
		var sum, all, left float64
		if c.flags&64 != 0 {
			sum = float64(start[i])
			all = math.Abs(sum)
		}
		for k := range c.cols {
			a := float64(r.decoded[i/c.n*c.cols+k])
			p := a * float64(r.b[i%c.n*c.cols+k])
			sum, all = sum+p, all+math.Abs(p)
			left += math.Abs(a) * greatest
		}
		// The sum of a span is first multiplied by the scale of A. That product may overflow,
		// or be subnormal and be rounded to 2^-149, before it is multiplied by the scale of B.
		if all < 0x1p120 && left < 0x1p127 {
			bound := all*float64(c.cols+8)*0x1p-23 + float64(c.cols/32+1)*0x1p-149*scaleB + 0x1p-100
			require.InDelta(t, sum, float64(r.product[i]), bound, "product, element %d", i)
		}
	}
}

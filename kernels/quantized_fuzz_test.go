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
// instruction set, and plain Go gives those of the definition.
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

type quantizedResult struct {
	codes                    [3][]byte // of A, its transpose, B
	decoded, turned, product []float32
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

// run runs the operations with an instruction set. Plain Go is compared with the definition.
func (c *quantizedCase) run(t *testing.T, set kernels.Instructions) (r quantizedResult) {
	d := newBenchWith(t, kernels.HostConfig{Instructions: set, Capacity: 16 << 20})
	ops := kernels.Quantization(d)
	if set == kernels.Portable {
		ops = defined{d.Host, d}
	}
	a, b := d.put(c.numbers(c.rows*c.cols, 1)), d.put(c.numbers(c.n*c.cols, 2))
	tally := d.putInts(make([]int32, kernels.TallyWords))
	op := kernels.Quantize{
		X: a, Rows: c.rows, Cols: c.cols, Rowwise: d.room(c.e, c.rows, c.cols), Columnwise: d.room(c.e, c.cols, c.rows),
		Stochastic: c.flags&1 != 0, Key: kernels.Key{Seed: c.seed}, AnyScale: c.flags&2 != 0, Down: c.flags&4 != 0,
		Tally: kernels.Cell{Buffer: tally},
	}
	if c.flags&8 != 0 {
		op.Epsilon = 1e-3
	}
	require.NoError(t, ops.Quantize(op))
	right := op
	right.X, right.Rows, right.Rowwise, right.Columnwise, right.Tally = b, c.n, d.room(c.e, c.n, c.cols), kernels.Quantized{}, kernels.Cell{}
	require.NoError(t, ops.Quantize(right))
	decode := func(q kernels.Quantized, transposed bool) []float32 {
		dst := d.put(make([]float32, q.Rows*q.Cols))
		require.NoError(t, ops.Dequantize(dst, q, transposed))
		return d.read(dst)
	}
	product := d.put(c.numbers(c.rows*c.n, 3))
	require.NoError(t, ops.QuantizedMatMul(kernels.QuantizedMatMul{
		A: op.Rowwise, B: right.Rowwise, C: product, M: c.rows, N: c.n, K: c.cols, Accumulate: c.flags&64 != 0,
		Workspace: d.put(make([]float32, d.QuantizedWorkspace(c.rows, c.n, c.cols))),
	}))
	r.codes = [3][]byte{d.bytes(op.Rowwise.Data), d.bytes(op.Columnwise.Data), d.bytes(right.Rowwise.Data)}
	r.decoded, r.turned = decode(op.Rowwise, false), decode(op.Columnwise, true)
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

package kernels_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// encodings are valid encodings; every format and every scaling occurs in one of them.
var encodings = []kernels.Encoding{
	{Format: kernels.E4M3}, {Format: kernels.E5M2},
	{Format: kernels.E4M3, Scaling: kernels.Rows128}, {Format: kernels.E5M2, Scaling: kernels.Tiles128},
	{Format: kernels.E4M3, Scaling: kernels.MX32}, {Format: kernels.E2M1, Scaling: kernels.NV16},
}

func TestEncoding(t *testing.T) {
	for _, c := range []struct {
		e          kernels.Encoding
		rows, cols int
		text       string
		bytes      int
	}{
		{kernels.Encoding{}, 3, 5, "e4m3/tensor", 16 + 4},
		{kernels.Encoding{Format: kernels.E5M2, Scaling: kernels.Rows128}, 3, 129, "e5m2/rows128", 388 + 3*2*4},
		{kernels.Encoding{Scaling: kernels.Tiles128}, 129, 129, "e4m3/tiles128", 16644 + 4*4},
		{kernels.Encoding{Scaling: kernels.MX32}, 3, 33, "e4m3/mx32", 100 + 3*2},
		{kernels.Encoding{Format: kernels.E2M1, Scaling: kernels.NV16}, 3, 17, "e2m1/nv16", 28 + 4 + 3*2},
		{kernels.Encoding{Format: kernels.E2M1}, 3, 17, "e2m1/tensor", 0},
		{kernels.Encoding{Scaling: kernels.NV16}, 3, 17, "e4m3/nv16", 0},
		{kernels.Encoding{Format: 7, Scaling: 9}, 3, 17, "format(7)/scaling(9)", 0},
		{kernels.Encoding{}, 0, 17, "e4m3/tensor", 0},
		{kernels.Encoding{Scaling: kernels.MX32}, math.MaxInt, math.MaxInt, "e4m3/mx32", math.MaxInt},
	} {
		require.Equal(t, c.text, c.e.String())
		require.Equal(t, c.bytes, c.e.Bytes(c.rows, c.cols), "%s of %d×%d", c.e, c.rows, c.cols)
		require.Equal(t, c.bytes != 0, c.e.Valid() && c.rows > 0)
	}
}

// room allocates a matrix without writing it.
func (b *bench) room(e kernels.Encoding, rows, cols int) kernels.Quantized {
	data, err := b.Alloc(memory.FP8, kernels.Uint8, e.Bytes(rows, cols))
	require.NoError(b, err)
	fill := make([]byte, data.N)
	for i := range fill {
		fill[i] = 0xff
	}
	require.NoError(b, b.WriteUint8(data, fill))
	return kernels.Quantized{Data: data, Encoding: e, Rows: rows, Cols: cols}
}

// quantized quantizes random numbers.
func (b *bench) quantized(e kernels.Encoding, rows, cols int) kernels.Quantized {
	q := b.room(e, rows, cols)
	require.NoError(b, b.Quantize(kernels.Quantize{X: b.random(rows * cols), Rows: rows, Cols: cols, Rowwise: q}))
	return q
}

func (b *bench) bytes(x kernels.Buffer) []byte {
	data := make([]byte, x.N)
	require.NoError(b, b.ReadUint8(data, x))
	return data
}

// If a row has an odd number of four-bit codes, the unused half byte is 0.
func TestHalfByteLeftOver(t *testing.T) {
	b := newBench(t)
	e := kernels.Encoding{Format: kernels.E2M1, Scaling: kernels.NV16}
	for _, cols := range []int{1, 5, 17, 33, 129} {
		for _, stochastic := range []bool{false, true} {
			op := kernels.Quantize{X: b.random(3 * cols), Rows: 3, Cols: cols, Rowwise: b.room(e, 3, cols), Columnwise: b.room(e, cols, 3), Stochastic: stochastic}
			require.NoError(t, b.Quantize(op))
			for r := range 3 {
				require.Zero(t, b.bytes(op.Rowwise.Data)[(r+1)*((cols+1)/2)-1]>>4, "row %d of %d codes", r, cols)
			}
			for c := range cols {
				require.Zero(t, b.bytes(op.Columnwise.Data)[2*c+1]>>4, "column %d", c)
			}
		}
	}
}

// Tallies merge in any order, and a quantized matrix is transferred to another device together
// with its scales.
func TestTallyAndTransfer(t *testing.T) {
	run := func(order []int) []int32 {
		b := newBench(t)
		tally, sources := b.putInts(make([]int32, 3*kernels.TallyWords)), []kernels.Buffer{b.random(64), b.random(640), b.random(96)}
		for _, i := range order {
			q := b.room(encodings[2], sources[i].N/32, 32)
			require.NoError(t, b.Quantize(kernels.Quantize{X: sources[i], Rows: q.Rows, Cols: q.Cols, Rowwise: q, Tally: kernels.Cell{Buffer: tally, Index: 2}}))
		}
		words := make([]int32, tally.N)
		require.NoError(t, b.ReadInt32(words, tally))
		require.Equal(t, make([]int32, 2*kernels.TallyWords), words[:2*kernels.TallyWords])
		return words[2*kernels.TallyWords:]
	}
	require.Equal(t, run([]int{0, 1, 2}), run([]int{2, 0, 1}))
	require.NotZero(t, run([]int{1})[1])

	from, to := newBench(t), newBench(t)
	q := from.quantized(encodings[4], 3, 40)
	moved := q
	var err error
	moved.Data, err = kernels.Transfer(to.Host, from.Host, q.Data)
	require.NoError(t, err)
	x, y := from.random(120), to.random(120)
	require.NoError(t, from.Dequantize(x, q, false))
	require.NoError(t, to.Dequantize(y, moved, false))
	require.Equal(t, from.read(x), to.read(y))
}

// For every magnitude of a tensor and every margin, the reciprocal of the scale is finite:
// encoded elements decode to numbers.
func TestMarginLeavesAScale(t *testing.T) {
	b := newBench(t)
	for _, anyScale := range []bool{false, true} {
		op := kernels.Quantize{
			X: b.put([]float32{3e38, -3e38, 1, 0}), Rows: 2, Cols: 2,
			Rowwise: b.room(kernels.Encoding{}, 2, 2), Margin: 64, AnyScale: anyScale,
		}
		require.NoError(t, b.Quantize(op))
		dst := b.random(4)
		require.NoError(t, b.Dequantize(dst, op.Rowwise, false))
		for i, x := range b.read(dst) {
			require.False(t, math.IsNaN(float64(x)) || math.IsInf(float64(x), 0), "element %d is %v", i, x)
		}
		require.InEpsilon(t, 3e38, b.read(dst)[0], 1./16)
	}
}

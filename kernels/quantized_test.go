package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// encodings are all valid encodings.
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

// raw returns the bytes of a buffer.
func (b *bench) raw(x kernels.Buffer) (data []byte) {
	for _, v := range b.read(x) {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

// lowPrecision runs every low-precision operation and returns everything it wrote. The keys
// begin with the name of the operation and a comma.
func (b *bench) lowPrecision(rows, cols int) map[string][]byte {
	results := map[string][]byte{}
	x := b.random(rows * cols)
	for _, e := range encodings {
		tally := b.putInts(make([]int32, kernels.TallyWords))
		for _, stochastic := range []bool{false, true} {
			op := kernels.Quantize{
				X: x, Rows: rows, Cols: cols, Rowwise: b.room(e, rows, cols), Columnwise: b.room(e, cols, rows),
				Stochastic: stochastic, Key: kernels.Key{Seed: 3}, Tally: kernels.Cell{Buffer: tally},
			}
			require.NoError(b, b.Quantize(op))
			name := fmt.Sprintf(", %s, stochastic %t", e, stochastic)
			results["Quantize"+name+": rowwise"], results["Quantize"+name+": columnwise"] = b.bytes(op.Rowwise.Data), b.bytes(op.Columnwise.Data)
			words := make([]int32, kernels.TallyWords)
			require.NoError(b, b.ReadInt32(words, tally))
			results["Quantize"+name+": tally"] = fmt.Append(nil, words)

			dst, c := b.random(rows*cols), b.random(cols*cols)
			product := kernels.QuantizedMatMul{
				A: op.Columnwise, B: op.Columnwise, C: c, Bias: b.random(cols), M: cols, N: cols, K: rows,
				Workspace: b.put(make([]float32, b.QuantizedWorkspace(cols, cols, rows))), Accumulate: true,
			}
			require.NoError(b, b.QuantizedMatMul(product))
			results["QuantizedMatMul"+name] = b.raw(c)
			require.NoError(b, b.Dequantize(dst, op.Columnwise, true))
			results["Dequantize"+name] = b.raw(dst)
		}
	}
	return results
}

// The bits do not depend on threads, at a size that is divided into parts and at one that is not.
// TestPlainGoByDefinition and package kerneltest compare instruction sets.
func TestLowPrecisionOfThreads(t *testing.T) {
	for _, s := range [][2]int{{300, 130}, {7, 12}} {
		want := newBench(t).lowPrecision(s[0], s[1])
		got := newBenchWith(t, kernels.HostConfig{Threads: 3}).lowPrecision(s[0], s[1])
		for name := range want {
			require.True(t, bytes.Equal(want[name], got[name]), name)
		}
	}
}

// everyQuantization returns all low-precision operations.
func everyQuantization(b *bench, e kernels.Encoding) map[string]func() error {
	const rows, cols = 140, 130
	x, c, dst := b.random(rows*cols), b.random(cols*cols), b.random(rows*cols)
	workspace, tally := b.random(b.QuantizedWorkspace(cols, cols, rows)), b.putInts(make([]int32, kernels.TallyWords))
	op := kernels.Quantize{
		X: x, Rows: rows, Cols: cols, Rowwise: b.room(e, rows, cols), Columnwise: b.room(e, cols, rows), Tally: kernels.Cell{Buffer: tally},
	}
	product := kernels.QuantizedMatMul{A: op.Columnwise, B: op.Columnwise, C: c, M: cols, N: cols, K: rows, Workspace: workspace}
	return map[string]func() error{
		"Quantize":               func() error { return b.Quantize(op) },
		"Quantize, stochastic":   func() error { op := op; op.Stochastic = true; return b.Quantize(op) },
		"Dequantize":             func() error { return b.Dequantize(dst, op.Rowwise, false) },
		"Dequantize, transposed": func() error { return b.Dequantize(dst, op.Columnwise, true) },
		"QuantizedMatMul":        func() error { return b.QuantizedMatMul(product) },
	}
}

// Low-precision operations allocate nothing on the Go heap (L11).
func TestLowPrecisionAllocatesNothing(t *testing.T) {
	for _, threads := range []int{1, 2} {
		b := newBenchWith(t, kernels.HostConfig{Threads: threads})
		for _, e := range encodings {
			for name, f := range everyQuantization(b, e) {
				require.NoError(t, f())
				require.Zero(t, testkit.Allocations(func() { _ = f() }, 0), "%s in %s, %d threads", name, e, threads)
			}
		}
	}
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

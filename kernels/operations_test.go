package kernels_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
)

// operation is a call of an operation, which can be repeated, with everything that it writes.
type operation struct {
	name     string // of the operation, possibly followed by a comma and a variant
	run      func() error
	written  []kernels.Buffer
	returned func() []float32 // the numbers that the last run returned; nil if there are none
}

// operations returns every operation except those of low precision, in an order in which some read
// what others wrote.
func (b *bench) operations(tokens, width, heads, vocabulary int) (list []operation) {
	add := func(name string, run func() error, written ...kernels.Buffer) {
		list = append(list, operation{name: name, run: run, written: written})
	}
	returns := func(numbers func() []float32) { list[len(list)-1].returned = numbers }
	all := tokens * width
	x, y, z, row := b.random(all), b.random(all), b.random(all), b.random(width)
	add("Add", func() error { return b.Add(y, x) }, y)
	add("Sum", func() error { return b.Sum(y, x, y) }, y)
	add("GELU", func() error { return b.GELU(y, x) }, y)
	add("GELUBackward", func() error { return b.GELUBackward(y, y, x) }, y)
	add("Dropout", func() error { return b.Dropout(y, x, 0.3, kernels.Key{Seed: 1}) }, y)
	add("Normal", func() error { return b.Normal(y, 0.5, kernels.Key{Seed: 1}) }, y)
	add("Zero", func() error { return b.Zero(z) }, z)
	add("Copy", func() error { return b.Copy(z, x) }, z)
	add("AddRow", func() error { return b.AddRow(z, row, tokens, width) }, z)
	add("SumRows", func() error { return b.SumRows(row, z, tokens, width, true) }, row)
	add("SumRows", func() error { return b.SumRows(row, z, tokens, width, false) }, row)

	product := kernels.MatMul{A: x, B: b.random(width * width), Bias: b.random(width), C: z, M: tokens, N: width, K: width, TransB: true, Accumulate: true}
	add("MatMul", func() error { return b.MatMul(product) }, z)

	ids, table, positions := b.ids(tokens, vocabulary), b.random(vocabulary*width), b.random(all+width)
	embed := kernels.Embed{IDs: ids, Table: table, Positions: positions, X: z, Tokens: tokens, Width: width, Vocabulary: vocabulary}
	add("Embed", func() error { return b.Embed(embed) }, z)
	for _, accumulateTable := range []bool{true, false} {
		back := kernels.EmbedBackward{
			IDs: ids, DX: z, DTable: table, DPositions: positions, Tokens: tokens, Width: width, Vocabulary: vocabulary,
			AccumulateTable: accumulateTable, AccumulatePositions: !accumulateTable,
		}
		add("EmbedBackward", func() error { return b.EmbedBackward(back) }, table, positions)
	}

	norm := kernels.LayerNorm{
		X: x, Gamma: b.random(width), Beta: b.random(width), Y: y, Mean: b.random(tokens), RStd: b.random(tokens), Rows: tokens, Cols: width,
	}
	add("LayerNorm", func() error { return b.LayerNorm(norm) }, y, norm.Mean, norm.RStd)
	normBack := kernels.LayerNormBackward{
		DY: y, X: x, Gamma: norm.Gamma, Mean: norm.Mean, RStd: norm.RStd, DX: b.random(all), DGamma: b.random(width), DBeta: b.random(width),
		Rows: tokens, Cols: width, AccumulateBeta: true,
	}
	add("LayerNormBackward", func() error { return b.LayerNormBackward(normBack) }, normBack.DX, normBack.DGamma, normBack.DBeta)

	forward, backward := b.AttentionWorkspace(tokens, heads, width/heads)
	attention := kernels.CausalAttention{
		QKV: b.random(3 * all), Out: y, LSE: b.random(heads * tokens), Workspace: b.put(make([]float32, forward)),
		Tokens: tokens, Heads: heads, HeadDim: width / heads,
	}
	add("CausalAttention", func() error { return b.CausalAttention(attention) }, y, attention.LSE)
	attentionBack := kernels.CausalAttentionBackward{
		DOut: x, QKV: attention.QKV, Out: y, LSE: attention.LSE, DQKV: b.random(3 * all), Workspace: b.put(make([]float32, backward)),
		Tokens: tokens, Heads: heads, HeadDim: width / heads,
	}
	add("CausalAttentionBackward", func() error { return b.CausalAttentionBackward(attentionBack) }, attentionBack.DQKV)

	head := kernels.HeadLoss{
		X: x, Table: b.random(vocabulary * width), Labels: b.ids(tokens, vocabulary), Weights: b.random(tokens), LSE: b.random(tokens),
		Workspace: b.put(make([]float32, b.HeadWorkspace(tokens, width, vocabulary))), Tokens: tokens, Width: width, Vocabulary: vocabulary,
	}
	var sum, weight float64
	add("HeadLoss", func() (err error) { sum, weight, err = b.HeadLoss(head); return err }, head.LSE)
	returns(func() []float32 { return []float32{float32(sum), float32(weight)} })
	headBack := kernels.HeadLossBackward{
		X: x, Table: head.Table, Labels: head.Labels, Weights: head.Weights, LSE: head.LSE, Workspace: head.Workspace,
		DX: normBack.DX, DTable: b.random(vocabulary * width), Seed: 2, Tokens: tokens, Width: width, Vocabulary: vocabulary, Accumulate: true,
	}
	add("HeadLossBackward", func() error { return b.HeadLossBackward(headBack) }, headBack.DX, headBack.DTable)

	const many = 150_001
	adam := kernels.AdamW{
		Weight: b.random(many), Grad: b.random(many), M: b.random(many), V: b.put(make([]float32, many)),
		Factor: 1, LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.99, Epsilon: 1e-8, Step: 1,
	}
	add("AdamW", func() error { return b.AdamW(adam) }, adam.Weight, adam.M, adam.V)
	var squares float64
	add("SumSquares", func() (err error) { squares, err = b.SumSquares(adam.Weight); return err })
	returns(func() []float32 { return []float32{float32(squares), float32(squares - float64(float32(squares)))} })
	return list
}

// lowPrecision returns every operation of low precision, in each of encodings.
func (b *bench) lowPrecision(rows, cols int) (list []operation) {
	x := b.random(rows * cols)
	for _, e := range encodings {
		tally := b.putInts(make([]int32, kernels.TallyWords))
		for _, stochastic := range []bool{false, true} {
			add := func(name string, run func() error, written ...kernels.Buffer) {
				name = fmt.Sprintf("%s, %s, stochastic %t", name, e, stochastic)
				list = append(list, operation{name: name, run: run, written: written})
			}
			op := kernels.Quantize{
				X: x, Rows: rows, Cols: cols, Rowwise: b.room(e, rows, cols), Columnwise: b.room(e, cols, rows),
				Stochastic: stochastic, Key: kernels.Key{Seed: 3}, Tally: kernels.Cell{Buffer: tally},
			}
			add("Quantize", func() error { return b.Quantize(op) }, op.Rowwise.Data, op.Columnwise.Data, tally)
			product := kernels.QuantizedMatMul{
				A: op.Columnwise, B: op.Columnwise, C: b.random(cols * cols), Bias: b.random(cols), M: cols, N: cols, K: rows,
				Workspace: b.put(make([]float32, b.QuantizedWorkspace(cols, cols, rows))), Accumulate: true,
			}
			add("QuantizedMatMul", func() error { return b.QuantizedMatMul(product) }, product.C)
			straight, transposed := b.random(rows*cols), b.random(rows*cols)
			add("Dequantize", func() error { return b.Dequantize(straight, op.Rowwise, false) }, straight)
			add("Dequantize", func() error { return b.Dequantize(transposed, op.Columnwise, true) }, transposed)
		}
	}
	return list
}

// outcome runs operations in order and returns the bits of everything that they wrote and returned.
func (b *bench) outcome(list []operation) map[string][]uint32 {
	results := map[string][]uint32{}
	for _, op := range list {
		require.NoError(b, op.run(), op.name)
		for _, buffer := range op.written {
			results[fmt.Sprintf("%s, result %d", op.name, len(results))] = b.bits(buffer)
		}
		if op.returned != nil {
			results[op.name] = bitsOf(op.returned())
		}
	}
	return results
}

// bits returns the elements of a buffer of any type.
func (b *bench) bits(buffer kernels.Buffer) []uint32 {
	bits := make([]uint32, buffer.N)
	switch buffer.Type {
	case kernels.Uint8:
		for i, v := range b.bytes(buffer) {
			bits[i] = uint32(v)
		}
	case kernels.Int32:
		words := make([]int32, buffer.N)
		require.NoError(b, b.ReadInt32(words, buffer))
		for i, v := range words {
			bits[i] = uint32(v)
		}
	default:
		return bitsOf(b.read(buffer))
	}
	return bits
}

func bitsOf(x []float32) []uint32 {
	bits := make([]uint32, len(x))
	for i, v := range x {
		bits[i] = math.Float32bits(v)
	}
	return bits
}

// The tests that run operations and lowPrecision cover every operation of a device.
func TestNoOperationIsMissing(t *testing.T) {
	b := newBench(t)
	var names []string
	for _, op := range slices.Concat(b.operations(5, 6, 2, 50), b.lowPrecision(7, 12)) {
		name, _, _ := strings.Cut(op.name, ",")
		names = append(names, name)
	}
	for _, operation := range testkit.Added[kernels.Compute, kernels.Device]() {
		if !slices.Contains(names, operation) {
			t.Errorf("add %s to operations or lowPrecision", operation)
		}
	}
}

// No operation allocates on the Go heap, for any sizes (L11).
func TestOperationsAllocateNothing(t *testing.T) {
	for _, size := range [][2]int{{5, 6}, {140, 130}} {
		b := newBench(t)
		x, y, host := b.random(size[0]*size[1]), b.random(size[0]*size[1]), make([]float32, size[0]*size[1])
		square := b.random(size[1] * size[1])
		more := []operation{
			{name: "WriteFloat32", run: func() error { return b.WriteFloat32(x, host) }},
			{name: "ReadFloat32", run: func() error { return b.ReadFloat32(host, x) }},
		}
		for _, op := range []kernels.MatMul{
			{A: x, B: square, C: y, M: size[0], N: size[1], K: size[1]},
			{A: x, B: square, C: y, M: size[0], N: size[1], K: size[1], TransB: true},
			{A: x, B: y, C: square, M: size[1], N: size[1], K: size[0], TransA: true, Accumulate: true},
		} {
			more = append(more, operation{name: fmt.Sprintf("%+v", op), run: func() error { return b.MatMul(op) }})
		}
		for _, op := range slices.Concat(b.operations(size[0], size[1], 2, 50), more) {
			require.NoError(t, op.run(), op.name)
			require.Zero(t, testing.AllocsPerRun(3, func() { _ = op.run() }), "%s at %v", op.name, size)
		}
	}
}

// Operations of low precision allocate nothing either, with one thread and with two.
func TestLowPrecisionAllocatesNothing(t *testing.T) {
	for _, threads := range []int{1, 2} {
		b := newBenchWith(t, kernels.HostConfig{Threads: threads})
		for _, op := range b.lowPrecision(140, 130) {
			require.NoError(t, op.run())
			require.Zero(t, testkit.Allocations(func() { _ = op.run() }, 0), "%s, %d threads", op.name, threads)
		}
	}
}

// Allocating and releasing buffers does not allocate on the Go heap either.
func TestBuffersAllocateNothing(t *testing.T) {
	b := newBench(t)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		x, _ := b.Alloc(0, kernels.Float32, 1000)
		_, _ = b.Hold(x)
		_, _ = b.Unhold(x)
		_, _ = b.Release(x)
	}))
}

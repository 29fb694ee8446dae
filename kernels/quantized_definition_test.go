package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/kernels"
)

// These tests prove plain Go by the definitions of the formats. Package kerneltest compares
// every device with plain Go.

// plainBench is a bench in plain Go.
func plainBench(t *testing.T) *bench {
	return newBenchWith(t, kernels.HostConfig{Instructions: kernels.Portable})
}

// matrix reads a quantized matrix.
func (b *bench) matrix(q kernels.Quantized) *storedMatrix {
	return newStoredMatrix(q.Encoding, q.Rows, q.Cols, b.bytes(q.Data))
}

// everyEncoding returns all valid encodings, and everyRule the rules of quantization in one.
func everyEncoding() (all []kernels.Encoding) {
	for f := kernels.E4M3; f <= kernels.E2M1; f++ {
		for s := kernels.PerTensor; s <= kernels.NV16; s++ {
			if e := (kernels.Encoding{Format: f, Scaling: s}); e.Valid() {
				all = append(all, e)
			}
		}
	}
	return all
}

func everyRule(e kernels.Encoding) []kernels.Quantize {
	key := kernels.Key{Seed: 7, Step: 3, Microbatch: 11, Op: 5}
	switch all := []kernels.Quantize{{}, {Stochastic: true, Key: key}}; e.Scaling {
	case kernels.PerTensor:
		return append(all, kernels.Quantize{AnyScale: true, Margin: 3}, kernels.Quantize{AnyScale: true, Epsilon: 1e-3})
	case kernels.MX32:
		return append(all, kernels.Quantize{Down: true})
	case kernels.NV16:
		return all
	default:
		return append(all, kernels.Quantize{AnyScale: true}, kernels.Quantize{Epsilon: 1e-3})
	}
}

// definitionKinds are the kinds of numbers that numbersOfKind draws.
const definitionKinds = 4

// numbersOfKind draws numbers whose magnitudes differ from row to row and from block to block,
// the same with non-finite ones, numbers at the edges of rounding, or huge ones.
func (b *bench) numbersOfKind(kind, rows, cols int) []float32 {
	x := b.draw(rows * cols)
	for i := range x {
		x[i] *= float32(math.Exp2(float64((i/cols*7+i%cols/16*5)%60 - 30)))
	}
	some := []float32{0, float32(math.Copysign(0, -1)), 1e-42, -3e38}
	switch kind {
	case 1:
		some = append(some, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()))
	case 2:
		for i := range x {
			x[i] = b.edge()
		}
		return x
	case 3:
		for i := range x {
			x[i] = math.MaxFloat32 * []float32{1, -1, 0.99, -0.96, 0.9, 0.6, 0x1p-8, 0x1p-16}[b.rng.IntN(8)]
		}
		return x
	}
	for i, v := range some {
		if len(x) > 20 {
			x[(i*len(x)/len(some)+b.rng.IntN(5))%len(x)] = v
		}
	}
	return x
}

// edge draws a number of at most 448 at which the rounding of a format changes: a value, or the
// midpoint of two, or a float32 next to one of them.
func (b *bench) edge() float32 {
	magnitudes := tables[b.rng.IntN(len(tables))]
	i := b.rng.IntN(len(magnitudes) - 1)
	x := magnitudes[i+1]
	if b.rng.IntN(2) == 0 {
		x = (magnitudes[i] + x) / 2
	}
	edge := math.Float32frombits(math.Float32bits(min(448, float32(x))) + uint32(b.rng.IntN(3)) - 1)
	if b.rng.IntN(2) == 0 {
		return -edge
	}
	return edge
}

// quantizeBoth quantizes x into both orientations and checks both by the definition. It returns
// the scales of the first.
func (b *bench) quantizeBoth(op *kernels.Quantize, e kernels.Encoding, x []float32, rows, cols int, fixed float32) []float32 {
	op.X, op.Rows, op.Cols = b.put(x), rows, cols
	op.Rowwise, op.Columnwise = b.room(e, rows, cols), b.room(e, cols, rows)
	require.NoError(b, b.Quantize(*op))
	title := fmt.Sprintf("%d×%d in %s, %+v", rows, cols, e, *op)
	multiplied := b.check(title+": Rowwise", *op, op.Rowwise, x, fixed)
	b.check(title+": Columnwise", *op, op.Columnwise, turned(x, rows, cols), fixed)
	return multiplied
}

// checkDecoded requires the definition's numbers from Dequantize, and returns them.
func (b *bench) checkDecoded(title string, q kernels.Quantized) []float32 {
	m := b.matrix(q)
	want := make([]float32, q.Rows*q.Cols)
	for i := range want {
		want[i] = m.value(i/q.Cols, i%q.Cols)
	}
	dst := b.put(make([]float32, len(want)))
	require.NoError(b, b.Dequantize(dst, q, false))
	sameNumbers(b.TB, want, b.read(dst), "%s, decoded", title)
	require.NoError(b, b.Dequantize(dst, q, true))
	sameNumbers(b.TB, turned(want, q.Rows, q.Cols), b.read(dst), "%s, decoded and transposed", title)
	_, err := b.Release(dst)
	require.NoError(b, err)
	return want
}

// turned returns the transpose of rows×cols elements.
func turned(x []float32, rows, cols int) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i%cols*rows+i/cols] = v
	}
	return y
}

// free releases buffers.
func (b *bench) free(buffers ...kernels.Buffer) {
	for _, buffer := range buffers {
		_, err := b.Release(buffer)
		require.NoError(b, err)
	}
}

// Codes and scales are those of the definition, with both orientations at once and alone, and
// finite numbers decode to finite numbers, even if the code nearest to one of them represents
// more than the greatest float32.
func TestQuantizeByDefinition(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	b := plainBench(t)
	for i, e := range everyEncoding() {
		for j, s := range [][2]int{{1, 1}, {3, 5}, {2, 16}, {17, 33}, {1, 300}, {130, 129}} {
			for k, op := range everyRule(e) {
				kind := (i + j + k) % definitionKinds
				if op.Stochastic && kind == 1 {
					kind = 0
				}
				rows, cols := s[0], s[1]
				x := b.numbersOfKind(kind, rows, cols)
				b.quantizeBoth(&op, e, x, rows, cols, 0)
				alone := op
				alone.Rowwise, alone.Columnwise = kernels.Quantized{}, b.room(e, cols, rows)
				require.NoError(t, b.Quantize(alone))
				b.check("Columnwise alone", alone, alone.Columnwise, turned(x, rows, cols), 0)
				for _, q := range []kernels.Quantized{op.Rowwise, op.Columnwise} {
					for i, v := range b.checkDecoded(e.String(), q) {
						require.True(t, kind == 1 || math.Abs(float64(v)) <= math.MaxFloat32, "%s: element %d decodes to %v", e, i, v)
					}
				}
				b.free(op.X, op.Rowwise.Data, op.Columnwise.Data, alone.Columnwise.Data)
			}
		}
	}
	slab := []float32{3, 0.5, 1000, 1e-20, 1, 448}
	scales := b.put(slab)
	for _, f := range []kernels.Format{kernels.E4M3, kernels.E5M2} {
		for i, scale := range slab {
			op := kernels.Quantize{Scale: kernels.Cell{Buffer: scales, Index: i}}
			b.quantizeBoth(&op, kernels.Encoding{Format: f}, b.numbersOfKind(i%3, 9, 21), 9, 21, scale)
		}
	}
}

// Random codes with the least scales, the greatest ones, and NaN decode by the definition.
func TestDequantizeByDefinition(t *testing.T) {
	b := plainBench(t)
	const rows, cols = 5, 300
	for _, e := range everyEncoding() {
		for exponent := 0; exponent < 256; exponent++ {
			if exponent == 2 {
				exponent = 230 // products with larger scales may overflow float32
			}
			q := b.room(e, rows, cols)
			m := b.matrix(q)
			for i := range m.data {
				m.data[i] = byte(b.rng.Uint32())
			}
			scales := m.data[m.from:]
			switch e.Scaling {
			case kernels.MX32:
				for i := range scales {
					scales[i] = byte(exponent - b.rng.IntN(2)*b.rng.IntN(256))
				}
				scales = nil
			case kernels.NV16:
				scales = scales[:4]
			}
			for i := 0; i < len(scales); i += 4 {
				binary.NativeEndian.PutUint32(scales[i:], uint32(exponent)<<23|b.rng.Uint32()>>9&-uint32(b.rng.IntN(2)))
			}
			require.NoError(t, b.WriteUint8(q.Data, m.data))
			b.checkDecoded(fmt.Sprintf("%s, scales around 2^%d", e, exponent-127), q)
			b.free(q.Data)
		}
	}
}

// A tally has the counts of its elements and the scales of its calls.
func TestTallyByDefinition(t *testing.T) {
	b := plainBench(t)
	bits := func(x float32) int32 { return int32(math.Float32bits(x) &^ (1 << 31)) }
	const rows, cols = 33, 70
	for i, e := range everyEncoding() {
		words := b.putInts(make([]int32, 3*kernels.TallyWords))
		var amax int32 // bits, which compare like magnitudes
		var least, most float32
		var nonFinite, saturated, underflowed int32
		for round := range 3 {
			x := b.numbersOfKind(0, rows, cols)
			if round == i%3 {
				x = b.numbersOfKind(1, rows, cols)
			}
			op := kernels.Quantize{
				X: b.put(x), Rows: rows, Cols: cols, Rowwise: b.room(e, rows, cols), Columnwise: b.room(e, cols, rows),
				Tally: kernels.Cell{Buffer: words, Index: 1},
			}
			fixed := float32(0)
			if e.Scaling == kernels.PerTensor {
				fixed = []float32{1e-6, 1, 5000}[round]
				op.Scale = kernels.Cell{Buffer: b.put([]float32{fixed})}
			}
			q := op.Rowwise
			if round == 2 {
				op.Rowwise, q, x = kernels.Quantized{}, op.Columnwise, turned(x, rows, cols)
			}
			require.NoError(t, b.Quantize(op))
			for _, s := range b.check(e.String(), op, q, x, fixed) {
				if least == 0 || s < least {
					least = s
				}
				most = max(most, s)
			}
			m := b.matrix(q)
			magnitudes, sign := values(e.Format)
			top := magnitudes[len(magnitudes)-1]
			beyond := top + (top-magnitudes[len(magnitudes)-2])/2 // above it, or at it if the top code is odd, an element saturates
			odd := (len(magnitudes)-1)%2 == 1
			for k, v := range x {
				amax = max(amax, bits(v))
				if v != v || math.IsInf(float64(v), 0) {
					nonFinite++
					continue
				}
				blockScale, above := m.scales(k/m.cols, k%m.cols)
				if above != above {
					above = 1 // a block of NaN counts as if its scale were 1
				}
				scale := float64(1 / above)
				switch m.Scaling {
				case kernels.NV16:
					scale = float64(min(1/float32(blockScale*above), math.MaxFloat32))
				case kernels.PerTensor:
					scale = float64(fixed)
				}
				scaled := float32(float64(v) * scale)
				if a := math.Abs(float64(scaled)); a > beyond || odd && a == beyond {
					saturated++
				}
				if encoded(e.Format, scaled)&^sign == 0 && v != 0 {
					underflowed++
				}
			}
		}
		want := make([]int32, 3*kernels.TallyWords)
		copy(want[kernels.TallyWords:], []int32{amax, bits(least), bits(most), nonFinite, saturated, 0, underflowed, 0})
		got := make([]int32, len(want))
		require.NoError(t, b.ReadInt32(got, words))
		require.Equal(t, want, got, "%s", e)
	}
}

// The number of non-finite elements of a tally stops at the greatest int32, the other counters
// carry into their upper words.
func TestFullTally(t *testing.T) {
	b := plainBench(t)
	nan := float32(math.NaN())
	x := []float32{nan, 1e6, nan, -1e6, 1e-9, nan, 1e-9}
	for _, c := range [][2]int32{{0, 3}, {math.MaxInt32 - 3, math.MaxInt32}, {math.MaxInt32 - 2, math.MaxInt32}, {math.MaxInt32, math.MaxInt32}} {
		op := kernels.Quantize{
			X: b.put(x), Rows: 1, Cols: len(x), Rowwise: b.room(kernels.Encoding{}, 1, len(x)),
			Scale: kernels.Cell{Buffer: b.put([]float32{1})}, Tally: kernels.Cell{Buffer: b.putInts([]int32{0, 0, 0, c[0], -1, 4, -2, 5})},
		}
		require.NoError(t, b.Quantize(op))
		got := make([]int32, kernels.TallyWords)
		require.NoError(t, b.ReadInt32(got, op.Tally.Buffer))
		require.Equal(t, []int32{c[1], 1, 5, 0, 6}, got[3:])
	}
}

// The product has the bits of its definition.
func TestQuantizedMatMulByDefinition(t *testing.T) {
	testkit.Slow(t)
	t.Parallel()
	b := plainBench(t)
	all := everyEncoding()
	for i, s := range [][3]int{{1, 1, 1}, {3, 5, 31}, {15, 33, 200}, {2, 40, 513}, {30, 17, 260}} {
		for j, left := range all {
			for k, right := range all {
				if i > 1 && (i+j+k)%8 != 0 && left != right {
					continue
				}
				quantized := func(e kernels.Encoding, rows int) kernels.Quantized {
					x := b.random(rows * s[2])
					if (i+j)%5 == 0 {
						x = b.put(b.numbersOfKind(1, rows, s[2]))
					}
					q := b.room(e, rows, s[2])
					require.NoError(t, b.Quantize(kernels.Quantize{X: x, Rows: rows, Cols: s[2], Rowwise: q}))
					b.free(x)
					return q
				}
				op := kernels.QuantizedMatMul{
					M: s[0], N: s[1], K: s[2], A: quantized(left, s[0]), B: quantized(right, s[1]), Accumulate: (i+j+k)%2 == 0,
					C: b.random(s[0] * s[1]), Workspace: b.put(make([]float32, b.QuantizedWorkspace(s[0], s[1], s[2]))),
				}
				want := b.matrix(op.A).product(b.matrix(op.B), b.read(op.C), op.Accumulate)
				if (j+k)%3 == 0 {
					op.Bias = b.random(op.N)
					for i, v := range slices.Repeat(b.read(op.Bias), op.M) {
						want[i] += v
					}
				}
				require.NoError(t, b.QuantizedMatMul(op))
				sameNumbers(b.TB, want, b.read(op.C), "%v of %s and %s", s, left, right)
				b.free(op.A.Data, op.B.Data, op.C, op.Workspace)
				if op.Bias != (kernels.Buffer{}) {
					b.free(op.Bias)
				}
			}
		}
	}
}

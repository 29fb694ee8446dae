package float8_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// The references of TransformerEngine: tests/pytorch/references/quantize_scale_calc.py,
// blockwise_quantizer_reference.py and ref_per_tensor_cs.py, with the inputs and shapes of
// test_float8_blockwise_scaling_exact.py; custom_recipes/reference_nvfp4.py;
// mxfp8/test_mxfp8_dequantize_extreme_scales.py. Every result agrees bit for bit, unless a
// comment says otherwise.

// scaleOf is scale_from_amax_tensor, in float64 with roundings at the points where float32
// rounds. Only infinity is different: scale_from_amax_tensor scales it by 0, and the kernels and
// this package by 1.
func scaleOf(amax, most, epsilon float64, powerOf2 bool) float32 {
	amax = max(amax, float64(float32(epsilon)))
	if amax == 0 || math.IsInf(amax, 0) || amax != amax {
		return 1
	}
	scale := float32(most / amax)
	if math.IsInf(float64(scale), 0) {
		scale = math.MaxFloat32
	}
	if powerOf2 {
		_, exponent := math.Frexp(float64(scale))
		scale = float32(math.Ldexp(1, exponent-1))
	}
	return scale
}

// quantized quantizes a matrix in tiles of high by wide elements, element by element, as the
// reference for blocks. Padding with zeros beyond the edges would change nothing.
func quantized(f *float8.Format, x []float32, rows, cols, high, wide int, rule *float8.Rule) (values []float64, inverses []float32) {
	values = make([]float64, len(x))
	search := newReference(f)
	for r := 0; r < rows; r += high {
		for c := 0; c < cols; c += wide {
			var amax float64
			tile := func(do func(at int)) {
				for i := r; i < min(r+high, rows); i++ {
					for j := c; j < min(c+wide, cols); j++ {
						do(i*cols + j)
					}
				}
			}
			tile(func(at int) { amax = max(amax, math.Abs(float64(x[at]))) })
			scale := scaleOf(amax, float64(f.Greatest()), float64(rule.Epsilon), !rule.AnyScale)
			tile(func(at int) { values[at] = search.nearest(x[at] * scale) })
			inverses = append(inverses, 1/scale)
		}
	}
	return values, inverses
}

// manyScales fills each tile with numbers from its own range, in equal steps from 0, so that no
// tile's scale fits another tile.
func manyScales(r *rand.Rand, rows, cols, high, wide int) []float32 {
	x := make([]float32, rows*cols)
	for i := 0; i < rows; i += high {
		for j := 0; j < cols; j += wide {
			step := (r.Float32()*2 - 1) * 8192 / float32(high*wide)
			for y := i; y < min(i+high, rows); y++ {
				for z := j; z < min(j+wide, cols); z++ {
					x[y*cols+z] = step * float32((y-i)*wide+z-j)
				}
			}
		}
	}
	return x
}

// shapes have only whole tiles, or remainders at the edges.
var shapes = []struct{ rows, cols int }{{128, 128}, {256, 272}, {303, 300}}

// Float8BlockScaling, 1x128 and 128x128, of a matrix and of its transpose; float32 and
// bfloat16; both formats; powers of two and arbitrary scales; epsilons. The reference pads with
// zeros and this package has a short last block: codes and scales are the same.
func TestBlockScalingAsTransformerEngine(t *testing.T) {
	testkit.Slow(t)
	r := rand.New(rand.NewPCG(13, 13))
	for _, shape := range shapes {
		for high, scaling := range map[int]float8.Scaling{1: float8.Rows128, 128: float8.Tiles128} {
			for _, half := range []bool{false, true} {
				x := manyScales(r, shape.rows, shape.cols, high, 128)
				if half {
					for i := range x { // truncated, to have a bfloat16 source
						x[i] = bfloat16(uint16(math.Float32bits(x[i]) >> 16))
					}
				}
				for _, f := range wide {
					for _, powerOf2 := range []bool{true, false} {
						for _, epsilon := range []float32{0, 100} {
							name := fmt.Sprintf("%dx%d of %dx128, bfloat16 %v, %s, power of two %v, epsilon %g", shape.rows, shape.cols, high, half, f.Name, powerOf2, epsilon)
							rule := &float8.Rule{Epsilon: epsilon, AnyScale: !powerOf2}
							across, inverses := quantized(f, x, shape.rows, shape.cols, high, 128, rule)
							down, inversesDown := quantized(f, transposed(x, shape.rows, shape.cols), shape.cols, shape.rows, high, 128, rule)
							for _, s := range sets() {
								rowwise, columnwise := matrices(s, scaling, f, x, shape.rows, shape.cols, rule)
								sameMatrix(t, across, inverses, &rowwise, fmt.Sprintf("%v, %s", s, name))
								sameMatrix(t, down, inversesDown, &columnwise, fmt.Sprintf("%v, %s, columns", s, name))
								if high > 1 { // square blocks: the transpose has the same codes
									require.Equal(t, transposed(rowwise.Codes, shape.rows, shape.cols), columnwise.Codes, "%v, %s", s, name)
								}
							}
						}
					}
				}
			}
		}
	}
}

// sameMatrix requires equal values and equal inverse scales.
func sameMatrix(t *testing.T, values []float64, inverses []float32, m *float8.Matrix, name string) {
	t.Helper()
	require.Equal(t, inverses, m.Factors, name)
	table := m.Format.Table()
	for i, want := range values {
		if got := float64(table[m.Codes[i]]); got != want {
			same(t, want, got, "%s, element %d", name, i)
		}
	}
}

// test_quantization_block_tiling_extrema: a tile of zeros, a tile of the source's greatest
// value, and an epsilon so small that its quotient overflows.
func TestExtremeBlocksAsTransformerEngine(t *testing.T) {
	maxHalf := bfloat16(0x7f7f)
	for _, f := range wide {
		for _, c := range []struct {
			x, epsilon float32
			powerOf2   bool
			want       float32
		}{
			{0, 0, true, 1}, {0, 0, false, 1},
			{math.MaxFloat32, 0, false, 1 / (f.Greatest() / math.MaxFloat32)},
			{math.MaxFloat32, 0, true, float32(1 / math.Exp2(math.Floor(math.Log2(float64(f.Greatest())/math.MaxFloat32))))},
			{maxHalf, 0, false, 1 / (f.Greatest() / maxHalf)},
			{0, 0x1p-130, true, 0x1p-127}, {0, 0x1p-130, false, 1 / float32(math.MaxFloat32)},
		} {
			x := slices.Repeat([]float32{c.x}, 128*128)
			for _, s := range sets() {
				for _, scaling := range []float8.Scaling{float8.Tiles128, float8.Rows128} {
					rowwise, columnwise := matrices(s, scaling, f, x, 128, 128, &float8.Rule{Epsilon: c.epsilon, AnyScale: !c.powerOf2})
					for _, m := range []float8.Matrix{rowwise, columnwise} {
						require.Equal(t, c.want, m.Factors[0], "%v %s %+v", s, f.Name, c)
						require.Equal(t, f.Encode(c.x/c.want, float8.Saturate), m.Codes[77], "%v %s %+v", s, f.Name, c)
					}
				}
			}
		}
	}
}

// ref_per_tensor_cs_cast: current scaling, with one scale per tensor.
func TestCurrentScalingAsTransformerEngine(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 17))
	for _, f := range wide {
		for _, powerOf2 := range []bool{true, false} {
			for _, epsilon := range []float32{0, 1e-3, 50} {
				x := manyScales(r, 61, 67, 61, 67)
				rule := &float8.Rule{Epsilon: epsilon, AnyScale: !powerOf2}
				values, inverses := quantized(f, x, 61, 67, 61, 67, rule)
				for _, s := range sets() {
					rule.Scale = float8.ScaleOf(math.Float32frombits(s.Amax(x)), f.Greatest(), epsilon, powerOf2)
					rowwise, columnwise := matrices(s, float8.PerTensor, f, x, 61, 67, rule)
					sameMatrix(t, values, inverses, &rowwise, f.Name)
					require.Equal(t, transposed(rowwise.Codes, 61, 67), columnwise.Codes)
				}
			}
		}
	}
}

// NVFP4QuantizerRef with blocks of 16, with the kernels' order of products; cast_to_fp4x2 is a
// table of thresholds. It encodes -0 as 0; the kernels and this package encode it as -0.
func TestNVFP4AsTransformerEngine(t *testing.T) {
	e4m3 := newReference(&float8.E4M3)
	thresholds := []float32{0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5}
	fp4 := func(x float32) (code byte) {
		for i, edge := range thresholds {
			if a := float32(math.Abs(float64(x))); a > edge || a == edge && i&1 == 1 {
				code = byte(i + 1)
			}
		}
		if math.Signbit(float64(x)) {
			code |= 8
		}
		return code
	}
	for i, edge := range thresholds {
		require.Equal(t, fp4(edge), float8.E2M1.Encode(edge, float8.Saturate), "%d", i)
		require.Equal(t, byte(i), float8.E2M1.Encode(math.Nextafter32(edge, 0), float8.Saturate))
		require.Equal(t, byte(i+1), float8.E2M1.Encode(math.Nextafter32(edge, 9), float8.Saturate))
	}
	r := rand.New(rand.NewPCG(19, 19))
	for _, magnitude := range []float32{1, 1e-30, 1e30, math.MaxFloat32 / 6, 0} {
		for _, shape := range shapes {
			cols := shape.cols
			x := make([]float32, shape.rows*cols)
			var amax float32
			for i := range x {
				x[i] = magnitude * float32(r.NormFloat64())
				amax = max(amax, float32(math.Abs(float64(x[i]))))
			}
			tensor := float32(math.MaxFloat32)
			if q := float32(float64(448*6) / float64(amax)); amax == 0 || q == 0 {
				tensor = 1
			} else {
				tensor = min(tensor, q)
			}
			require.Equal(t, tensor, float8.TensorNV(amax))
			multiplier := tensor * float32(1/float32(6))
			decode := 1 / tensor
			check := func(m *float8.Matrix, x []float32, name string) {
				require.Equal(t, []float32{decode}, m.Factors)
				for row := range m.Rows {
					for b := range m.Across {
						block := x[row*m.Cols+16*b : row*m.Cols+min(16*(b+1), m.Cols)]
						var most float32
						for _, x := range block {
							most = max(most, float32(math.Abs(float64(x))))
						}
						scale := float8.E4M3.Decode(m.Scales[row*m.Across+b])
						same(t, e4m3.nearest(most*multiplier), float64(scale), "%s: scale of block %d in row %d", name, b, row)
						encode := min(1/float32(scale*decode), math.MaxFloat32)
						for i, x := range block {
							at := 16*b + i
							if want, got := fp4(max(-6, min(6, x*encode))), m.Codes[row*m.Stride+at/2]>>(4*(at&1))&15; want != got {
								require.Equal(t, want, got, "%s: element %d of row %d: %g", name, at, row, x)
							}
						}
					}
				}
			}
			for _, s := range sets() {
				rowwise, columnwise := matrices(s, float8.NV16, &float8.E2M1, x, shape.rows, cols, &float8.Rule{Scale: tensor})
				check(&rowwise, x, "rows")
				check(&columnwise, transposed(x, shape.rows, cols), "columns")
			}
		}
	}
}

// The order of the products matters if a scale is the midpoint of two codes: amax times (tensor
// times 1/6) differs from (amax times tensor) times 1/6.
func TestOrderOfProductsAsTransformerEngine(t *testing.T) {
	const sixth = float32(1.0) / 6
	e4m3, differ := newReference(&float8.E4M3), 0
	for _, amax := range []float32{3.7, 0.9, 11.3, 1000.1} {
		tensor := float8.TensorNV(amax)
		for code := range byte(float8.E4M3.Max) {
			middle := (float8.E4M3.Decode(code) + float8.E4M3.Decode(code+1)) / 2
			for off := range uint32(9) {
				most := math.Float32frombits(math.Float32bits(middle/float32(tensor*sixth)) + off - 4)
				src := make([]float32, 16)
				src[5] = -most
				m, _ := matrices(float8.Portable, float8.NV16, &float8.E2M1, src, 1, 16, &float8.Rule{Scale: tensor})
				want := e4m3.nearest(most * float32(tensor*sixth))
				same(t, want, float64(float8.E4M3.Decode(m.Scales[0])), "%g times %g", most, tensor)
				if other := e4m3.nearest(float32(most*tensor) * sixth); other != want {
					differ++
				}
			}
		}
	}
	require.Positive(t, differ, "some of these show the order")
}

// test_nvfp4_sr_quantize: the mean of 50 stochastic roundings is closer to the numbers than
// rounding to nearest.
func TestStochasticNVFP4AsTransformerEngine(t *testing.T) {
	const rows, cols, trials = 64, 128, 50
	r := rand.New(rand.NewPCG(23, 23))
	x := make([]float32, rows*cols)
	var amax float32
	for i := range x {
		x[i] = float32(2*r.NormFloat64() - 1)
		amax = max(amax, float32(math.Abs(float64(x[i]))))
	}
	distance := func(to []float64) (sum float64) {
		for i, y := range to {
			sum += (y - float64(x[i])) * (y - float64(x[i]))
		}
		return math.Sqrt(sum / float64(len(x)))
	}
	add := func(to []float64, random *vector.Philox, share float64) {
		m, _ := matrices(float8.Portable, float8.NV16, &float8.E2M1, x, rows, cols, &float8.Rule{Scale: float8.TensorNV(amax), Random: random})
		back := make([]float32, len(x))
		float8.Portable.Dequantize(back, &m, 0, rows)
		for i, y := range back {
			to[i] += share * float64(y)
		}
	}
	nearest, mean := make([]float64, len(x)), make([]float64, len(x))
	add(nearest, nil, 1)
	for range trials {
		add(mean, &vector.Philox{Seed: r.Uint64()}, 1.0/trials)
	}
	require.Less(t, 3*distance(mean), distance(nearest))
}

// test_dequantize_extreme_e8m0_scale_codes: scale code 0 is 2^-127 rather than zero, and 255 is
// NaN rather than infinity. The test decodes a block of ones with each of the other codes too.
func TestExtremeScalesAsTransformerEngine(t *testing.T) {
	const one = 56
	m := float8.Open(make([]byte, float8.LayoutOf(float8.MX32, &float8.E4M3, 1, 32*256).Size), float8.MX32, &float8.E4M3, 1, 32*256)
	for i := range m.Codes {
		m.Codes[i], m.Scales[i/32] = one, byte(i/32)
	}
	for _, s := range sets() {
		back := make([]float32, len(m.Codes))
		s.Dequantize(back, &m, 0, 1)
		for i, x := range back[:255*32] {
			require.Equal(t, float32(math.Ldexp(1, i/32-127)), x, "%v, scale %d", s, i/32)
		}
		for _, x := range back[255*32:] {
			require.True(t, x != x, "%v, scale 255", s)
		}
	}
}

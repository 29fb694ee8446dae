package float8_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/float8"
)

// The references of TransformerEngine: tests/pytorch/references/quantize_scale_calc.py,
// blockwise_quantizer_reference.py and ref_per_tensor_cs.py, with the inputs and shapes
// of test_float8_blockwise_scaling_exact.py; custom_recipes/reference_nvfp4.py;
// mxfp8/test_mxfp8_dequantize_extreme_scales.py. Everything is equal to the bit.

// scaleOf is scale_from_amax_tensor, in float64 with roundings where float32 has them.
// Its one deviation from the kernels is infinity, which it scales by 0: the kernels'
// scale of 1 is ours.
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

// quantized is a matrix in tiles of high by wide elements, element after element: the
// reference for blocks. Elements beyond the edges would be zeros, and change nothing.
func quantized(f *float8.Format, x []float32, rows, cols, high, wide int, epsilon float64, powerOf2 bool) (values []float64, inverses []float32) {
	values = make([]float64, len(x))
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
			scale, most := scaleOf(amax, float64(f.Greatest()), epsilon, powerOf2), f.Greatest()
			tile(func(at int) { values[at] = rounded(f, max(-most, min(most, x[at]*scale))) })
			inverses = append(inverses, 1/scale)
		}
	}
	return values, inverses
}

// manyScales gives each tile numbers of its own range, from 0 in equal steps, so that no
// tile's scale is right for another one.
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

func transposed(x []float32, rows, cols int) []float32 {
	t := make([]float32, len(x))
	for i := range rows {
		for j := range cols {
			t[j*rows+i] = x[i*cols+j]
		}
	}
	return t
}

// Shapes with whole tiles and with what is left at the edges.
var shapes = []struct{ rows, cols int }{{128, 128}, {256, 272}, {303, 300}}

// Float8BlockScaling, 1x128 along the rows and down the columns, 128x128 and its
// transpose; float32 and bfloat16; both formats; powers of two and any scale; epsilons.
func TestBlockScalingAsTransformerEngine(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 13))
	for _, shape := range shapes {
		for _, high := range []int{1, 128} {
			for _, half := range []bool{false, true} {
				x := manyScales(r, shape.rows, shape.cols, high, 128)
				if half {
					for i := range x { // towards zero, as good a source as any
						x[i] = float8.BFloat16(math.Float32bits(x[i]) >> 16).Float32()
					}
				}
				for _, f := range wide {
					for _, powerOf2 := range []bool{true, false} {
						for _, epsilon := range []float32{0, 100} {
							name := fmt.Sprintf("%dx%d of %dx128, bfloat16 %v, %s, power of two %v, epsilon %g", shape.rows, shape.cols, high, half, f.Name, powerOf2, epsilon)
							if high == 1 {
								sameRows(t, f, x, shape.rows, shape.cols, epsilon, powerOf2, name)
								sameRows(t, f, transposed(x, shape.rows, shape.cols), shape.cols, shape.rows, epsilon, powerOf2, name+", columns")
							} else {
								sameTiles(t, f, x, shape.rows, shape.cols, epsilon, powerOf2, name)
							}
						}
					}
				}
			}
		}
	}
}

// sameRows compares rows in blocks of 128, padded with zeros as the reference pads them.
func sameRows(t *testing.T, f *float8.Format, x []float32, rows, cols int, epsilon float32, powerOf2 bool, name string) {
	t.Helper()
	values, inverses := quantized(f, x, rows, cols, 1, float8.BlockRow, float64(epsilon), powerOf2)
	blocks := (cols + float8.BlockRow - 1) / float8.BlockRow
	padded, table := make([]float32, rows*blocks*float8.BlockRow), f.Table()
	for i := range rows {
		copy(padded[i*blocks*float8.BlockRow:], x[i*cols:][:cols])
	}
	for _, s := range sets() {
		codes, got := make([]byte, len(padded)), make([]float32, rows*blocks)
		s.EncodeRows(codes, got, padded, f, epsilon, powerOf2)
		require.Equal(t, inverses, got, "%v, %s", s, name)
		for i := range rows {
			for j := range cols {
				if want, got := values[i*cols+j], float64(table[codes[i*blocks*float8.BlockRow+j]]); got != want {
					same(t, want, got, "%v, %s, row %d, column %d", s, name, i, j)
				}
			}
		}
	}
}

// sameTiles compares tiles, and that the transpose has the transposed codes and scales:
// only square blocks have that.
func sameTiles(t *testing.T, f *float8.Format, x []float32, rows, cols int, epsilon float32, powerOf2 bool, name string) {
	t.Helper()
	values, inverses := quantized(f, x, rows, cols, float8.BlockTile, float8.BlockTile, float64(epsilon), powerOf2)
	table := f.Table()
	for _, s := range sets() {
		codes, got := make([]byte, len(x)), make([]float32, len(inverses))
		s.EncodeTiles(codes, got, x, rows, cols, f, epsilon, powerOf2)
		require.Equal(t, inverses, got, "%v, %s", s, name)
		for i, want := range values {
			if got := float64(table[codes[i]]); got != want {
				same(t, want, got, "%v, %s, element %d", s, name, i)
			}
		}
		turned, scales := make([]byte, len(x)), make([]float32, len(inverses))
		s.EncodeTiles(turned, scales, transposed(x, rows, cols), cols, rows, f, epsilon, powerOf2)
		across := (cols + float8.BlockTile - 1) / float8.BlockTile
		require.Equal(t, transposed(inverses, len(inverses)/across, across), scales, "%v, %s, transposed", s, name)
		for i := range rows {
			for j := range cols {
				if codes[i*cols+j] != turned[j*rows+i] {
					require.FailNow(t, "the transpose has another code", "%v, %s, row %d, column %d", s, name, i, j)
				}
			}
		}
	}
}

// test_quantization_block_tiling_extrema: one tile of zeros, and one of the greatest
// value of the source; and an epsilon so small that its quotient is too large.
func TestExtremeBlocksAsTransformerEngine(t *testing.T) {
	mostHalf := float8.BFloat16(0x7f7f).Float32()
	for _, f := range wide {
		for _, c := range []struct {
			x, epsilon float32
			powerOf2   bool
			want       float32
		}{
			{0, 0, true, 1}, {0, 0, false, 1},
			{math.MaxFloat32, 0, false, 1 / (f.Greatest() / math.MaxFloat32)},
			{math.MaxFloat32, 0, true, float32(1 / math.Exp2(math.Floor(math.Log2(float64(f.Greatest())/math.MaxFloat32))))},
			{mostHalf, 0, false, 1 / (f.Greatest() / mostHalf)},
			{0, 0x1p-130, true, 0x1p-127}, {0, 0x1p-130, false, 1 / float32(math.MaxFloat32)},
		} {
			x := make([]float32, 128*128)
			for i := range x {
				x[i] = c.x
			}
			for _, s := range sets() {
				codes, inverses := make([]byte, len(x)), make([]float32, 1)
				s.EncodeTiles(codes, inverses, x, 128, 128, f, c.epsilon, c.powerOf2)
				require.Equal(t, c.want, inverses[0], "%v %s %+v", s, f.Name, c)
				require.Equal(t, f.Encode(c.x/c.want, float8.Saturate), codes[77], "%v %s %+v", s, f.Name, c)
			}
		}
	}
}

// ref_per_tensor_cs_cast: current scaling, with one scale for a tensor.
func TestCurrentScalingAsTransformerEngine(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 17))
	for _, f := range wide {
		for _, powerOf2 := range []bool{true, false} {
			for _, epsilon := range []float32{0, 1e-3, 50} {
				x := manyScales(r, 61, 67, 61, 67)
				values, inverses := quantized(f, x, 61, 67, 61, 67, float64(epsilon), powerOf2)
				for _, s := range sets() {
					scale := float8.ScaleOf(math.Float32frombits(s.Amax(x)), f.Greatest(), epsilon, powerOf2)
					require.Equal(t, inverses[0], 1/scale)
					codes := make([]byte, len(x))
					s.Encode(codes, x, f, scale, float8.Saturate)
					for i, want := range values {
						same(t, want, float64(f.Decode(codes[i])), "%v %s, element %d", s, f.Name, i)
					}
				}
			}
		}
	}
}

// NVFP4QuantizerRef with blocks of 16, in the order of products that the kernels have;
// cast_to_fp4x2 is a table of thresholds. It has a zero for -0, the kernels and we -0.
func TestNVFP4AsTransformerEngine(t *testing.T) {
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
			cols := shape.cols &^ 15
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
			codes, scales := make([]byte, len(x)/2), make([]byte, len(x)/16)
			float8.EncodeNV(codes, scales, x, tensor, nil)
			multiplier := tensor * float32(1/float32(6))
			decode := 1 / tensor
			for b, scale := range scales {
				var most float32
				for _, x := range x[16*b:][:16] {
					most = max(most, float32(math.Abs(float64(x))))
				}
				product := min(most*multiplier, 448)
				same(t, rounded(&float8.E4M3, product), float64(float8.E4M3.Decode(scale)), "scale of block %d", b)
				encode := min(1/float32(float8.E4M3.Decode(scale)*decode), math.MaxFloat32)
				for i, x := range x[16*b:][:16] {
					at := 16*b + i
					require.Equal(t, fp4(max(-6, min(6, x*encode))), codes[at/2]>>(4*(at&1))&15, "element %d: %g", at, x)
				}
			}
		}
	}
}

// The order of products counts where a scale lies at the middle of two codes: amax times
// (tensor times 1/6) is not (amax times tensor) times 1/6.
func TestOrderOfProductsAsTransformerEngine(t *testing.T) {
	const sixth = float32(1.0) / 6
	differ := 0
	for _, amax := range []float32{3.7, 0.9, 11.3, 1000.1} {
		tensor := float8.TensorNV(amax)
		for code := range byte(float8.E4M3.Max) {
			middle := (float8.E4M3.Decode(code) + float8.E4M3.Decode(code+1)) / 2
			for off := range uint32(9) {
				most := math.Float32frombits(math.Float32bits(middle/float32(tensor*sixth)) + off - 4)
				src, codes, scales := make([]float32, 16), make([]byte, 8), make([]byte, 1)
				src[5] = -most
				float8.EncodeNV(codes, scales, src, tensor, nil)
				want := rounded(&float8.E4M3, min(most*float32(tensor*sixth), 448))
				same(t, want, float64(float8.E4M3.Decode(scales[0])), "%g times %g", most, tensor)
				if other := rounded(&float8.E4M3, min(float32(most*tensor)*sixth, 448)); other != want {
					differ++
				}
			}
		}
	}
	require.Positive(t, differ, "some of these show the order")
}

// test_nvfp4_sr_quantize: the mean of 50 stochastic roundings is nearer to the numbers
// than the nearest ones are.
func TestStochasticNVFP4AsTransformerEngine(t *testing.T) {
	r := rand.New(rand.NewPCG(23, 23))
	x := make([]float32, 64*128)
	var amax float32
	for i := range x {
		x[i] = float32(2*r.NormFloat64() - 1)
		amax = max(amax, float32(math.Abs(float64(x[i]))))
	}
	tensor := float8.TensorNV(amax)
	codes, scales, back := make([]byte, len(x)/2), make([]byte, len(x)/16), make([]float32, len(x))
	distance := func(to []float64) (sum float64) {
		for i, y := range to {
			sum += (y - float64(x[i])) * (y - float64(x[i]))
		}
		return math.Sqrt(sum / float64(len(x)))
	}
	add := func(to []float64, random func(int) uint32, share float64) {
		float8.EncodeNV(codes, scales, x, tensor, random)
		float8.DecodeNV(back, codes, scales, tensor)
		for i, y := range back {
			to[i] += share * float64(y)
		}
	}
	nearest, mean := make([]float64, len(x)), make([]float64, len(x))
	add(nearest, nil, 1)
	for range 50 {
		add(mean, func(int) uint32 { return r.Uint32() }, 1.0/50)
	}
	require.Less(t, 3*distance(mean), distance(nearest))
}

// test_dequantize_extreme_e8m0_scale_codes: scale 0 is 2^-127, not zero, and 255 is NaN,
// not infinity. The others between, for one element each.
func TestExtremeScalesAsTransformerEngine(t *testing.T) {
	const one = 56
	codes := make([]byte, 32*256)
	scales := make([]float8.E8M0, 256)
	for i := range codes {
		codes[i], scales[i/32] = one, float8.E8M0(i/32)
	}
	for _, s := range sets() {
		back := make([]float32, len(codes))
		s.DecodeMX(back, codes, scales, &float8.E4M3)
		for i, x := range back[:255*32] {
			require.Equal(t, float32(math.Ldexp(1, i/32-127)), x, "%v, scale %d", s, i/32)
		}
		for _, x := range back[255*32:] {
			require.True(t, x != x, "%v, scale 255", s)
		}
	}
}

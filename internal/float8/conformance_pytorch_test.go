package float8_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/weir-ml/weir/internal/float8"
)

// The tables of PyTorch: test/quantization/core/experimental/test_floatx.py.

// SPECIAL_NUMBERS, as bits and values. Every line except NaN also holds with the sign flipped.
func TestSpecialNumbersAsPyTorch(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		format *float8.Format
		code   byte
		want   float64
	}{
		{&float8.E5M2, 0b0_11111_00, inf}, {&float8.E5M2, 0b0_11111_01, nan}, {&float8.E5M2, 0b0_11111_10, nan}, {&float8.E5M2, 0b0_11111_11, nan},
		{&float8.E5M2, 0, 0}, {&float8.E5M2, 0b0_11110_11, 57344}, {&float8.E5M2, 0b0_00001_00, 0x1p-14},
		{&float8.E5M2, 0b0_00000_11, 0.75 * 0x1p-14}, {&float8.E5M2, 0b0_00000_01, 0x1p-16},
		{&float8.E4M3, 0b0_1111_111, nan}, {&float8.E4M3, 0, 0}, {&float8.E4M3, 0b0_1111_110, 448}, {&float8.E4M3, 0b0_0001_000, 0x1p-6},
		{&float8.E4M3, 0b0_0000_111, 0.875 * 0x1p-6}, {&float8.E4M3, 0b0_0000_001, 0x1p-9},
	} {
		same(t, c.want, float64(c.format.Decode(c.code)), "%s %#b", c.format.Name, c.code)
		same(t, -c.want, float64(c.format.Decode(c.code|0x80)), "%s -%#b", c.format.Name, c.code)
	}
	for code, want := range map[float8.E8M0]float64{0: 0x1p-127, 0xfe: 0x1p127, 0x7e: 0.5, 0x7f: 1, 0x80: 2, 0xff: nan} {
		same(t, want, float64(code.Float32()), "e8m0 %#x", code)
	}
}

// ROUND_TRIP_TEST_CASES, against rounding on bits: the whole range, below the smallest normal
// value, integers, around the greatest value, every bfloat16 and float16, and arbitrary bit
// patterns.
func TestCastRoundTripAsPyTorch(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	for _, f := range formats {
		most, normal := f.Greatest(), f.LeastNormal()
		check := func(x float32) {
			for _, x := range []float32{x, -x} {
				same(t, rounded(f, x), encoded(f, x, float8.Overflows), "%s of %g", f.Name, x)
			}
		}
		for range 10_000 {
			check(r.Float32() * most)
			check(r.Float32() * 2 * normal)
			check(math.Float32frombits(r.Uint32()))
		}
		for i := range int(most) {
			check(float32(i))
		}
		step := f.Decode(f.Encode(1, float8.Saturate)+1) - 1
		for quarter := -12; quarter < 12; quarter++ {
			check(most + step*most*float32(quarter)/4)
		}
		for code := range 1 << 16 {
			check(float8.BFloat16(code).Float32())
			check(float8.Float16(code).Float32())
		}
	}
}

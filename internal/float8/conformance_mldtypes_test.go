package float8_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/float8"
)

// The tables of ml_dtypes: float8_test.cc, mxfloat_test.cc and custom_float_test.py.

// NumericLimits: the smallest normal, the greatest and the smallest subnormal value, the
// spacing at 1, the bits of the significand, and the conversion of infinity.
func TestLimitsAsMLDtypes(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		format                                *float8.Format
		normal, max, epsilon, least, infinity float64
		digits                                int
	}{
		{&float8.E4M3, 0x1p-6, 448, 0.125, 0x1p-9, nan, 4},
		{&float8.E5M2, 0x1p-14, 57344, 0.25, 0x1p-16, inf, 3},
		{&float8.E2M1, 1, 6, 0.5, 0.5, 6, 2},
	} {
		f := c.format
		one := f.Encode(1, float8.Saturate)
		require.Equal(t, c.normal, float64(f.LeastNormal()), f.Name)
		require.Equal(t, c.max, float64(f.Greatest()), f.Name)
		require.Equal(t, -c.max, float64(f.Decode(f.Max|f.Sign)), f.Name)
		require.Equal(t, c.epsilon, float64(f.Decode(one+1)-1), f.Name)
		require.Equal(t, c.least, float64(f.Least()), f.Name)
		require.Equal(t, c.digits, f.Mantissa+1, f.Name)
		same(t, c.infinity, encoded(f, float32(inf), float8.Overflows), "infinity in %s", f.Name)
	}
}

// UpCasts, DownCasts and CastThroughFloat: the value of a code is also a float16 and a
// bfloat16, each of which converts back to the same code, and a conversion to another format
// rounds once.
func TestEveryCodeAsMLDtypes(t *testing.T) {
	for _, f := range formats {
		for code := range 2 * int(f.Sign) {
			x := f.Decode(byte(code))
			for _, to := range formats {
				same(t, rounded(to, x), encoded(to, x, float8.Overflows), "%s %#x to %s", f.Name, code, to.Name)
			}
			if x != x {
				continue
			}
			bits := math.Float32bits(x)
			half, ok := float16[bits]
			require.True(t, ok, "%s %#x is not a float16", f.Name, code)
			require.Zero(t, bits&0xffff, "%s %#x is not a bfloat16", f.Name, code)
			for _, from := range []float32{x, half.Float32(), float8.BFloat16(bits >> 16).Float32(), float8.Odd(float64(x))} {
				require.Equal(t, byte(code), f.Encode(from, float8.Overflows), "%s %#x from %g", f.Name, code, from)
			}
		}
	}
}

// ConvertFromWithSaturation. Infinity saturates too, as in ONNX and CUDA (satfinite). ml_dtypes
// keeps it as infinity or NaN.
func TestSaturationAsMLDtypes(t *testing.T) {
	for _, f := range formats {
		twice := 2 * f.Greatest()
		require.Equal(t, f.Max, f.Encode(twice, float8.Saturate), f.Name)
		require.Equal(t, f.Max|f.Sign, f.Encode(-twice, float8.Saturate), f.Name)
		require.Equal(t, f.Max, f.Encode(float8.Odd(math.MaxFloat64), float8.Saturate), f.Name)
		require.Equal(t, f.Max, f.Encode(float32(math.Inf(1)), float8.Saturate), f.Name)
		require.Equal(t, f.NaN, f.Encode(float32(math.NaN()), float8.Saturate), f.Name)
		same(t, overflowed(f, 1), encoded(f, float8.Odd(0x1p128), float8.Overflows), "2^128 in %s", f.Name)
	}
}

// ConvertFromWithTruncation: a value slightly below 2, and one slightly below each subnormal
// value, rounded and truncated. Stochastic rounding truncates if its random number is 0.
func TestTruncationAsMLDtypes(t *testing.T) {
	belowTwo := math.Float32frombits(0x3fffffff)
	for _, f := range formats {
		two := f.Encode(2, float8.Saturate)
		require.Equal(t, two, f.Encode(belowTwo, float8.Overflows), f.Name)
		require.Equal(t, two-1, f.Stochastic(belowTwo, 0, float8.Overflows), f.Name)
		for code := byte(1); code < 1<<f.Mantissa; code++ {
			below := math.Nextafter32(f.Decode(code), 0)
			require.Equal(t, code, f.Encode(below, float8.Overflows), "%s %#x", f.Name, code)
			require.Equal(t, code-1, f.Stochastic(below, 0, float8.Overflows), "%s %#x", f.Name, code)
		}
	}
}

// DoubleRound: a number above the midpoint of 1 and the next value, by less than a float32 can
// represent. Rounding to float32 first moves it to the midpoint, from which it rounds down to
// 1.
func TestDoubleRoundAsMLDtypes(t *testing.T) {
	for _, f := range formats {
		for _, digits := range []int{24, 53} { // of float32 and float64
			x := 1 + math.Ldexp(1, -f.Mantissa-1) + math.Ldexp(1, -min(digits, 52))
			next := f.Encode(1, float8.Saturate) + 1
			require.Equal(t, next, f.Encode(float8.Odd(x), float8.Overflows), "%s, %d digits", f.Name, digits)
			require.Equal(t, next|f.Sign, f.Encode(float8.Odd(-x), float8.Overflows), "%s, %d digits", f.Name, digits)
			require.Equal(t, next-1, f.Encode(float32(x), float8.Overflows), "%s, %d digits: two roundings", f.Name, digits)
		}
	}
}

// SmallCastToDenormal, and the casts from float16 and between formats, code by code.
func TestCastsAsMLDtypes(t *testing.T) {
	half := func(code float8.Float16) float32 { return code.Float32() }
	for _, c := range []struct {
		name     string
		format   *float8.Format
		from     float32
		overflow float8.Overflow
		rounded  byte
		cut      byte // 0: not in the table
	}{
		{"to a subnormal value", &float8.E4M3, 0x0.94p-6, float8.Overflows, 0x05, 0},
		{"to a subnormal value", &float8.E5M2, 0x0.A8p-14, float8.Overflows, 0x03, 0},
		{"2^-7 - 2^-10 of e5m2", &float8.E4M3, float8.E5M2.Decode(0x1f), float8.Overflows, 0x04, 0x03},
		{"the greatest of e5m2", &float8.E4M3, 57344, float8.Saturate, 0x7e, 0},
		{"0x1.dfcp+8 of float16", &float8.E4M3, 0x1.dfcp+8, float8.Saturate, 0x7e, 0},
		{"infinity of float16", &float8.E5M2, half(0x7c00), float8.Overflows, 0x7c, 0},
		{"-infinity of float16", &float8.E5M2, half(0xfc00), float8.Overflows, 0xfc, 0},
		{"below 2 of float16", &float8.E5M2, half(0x3fff), float8.Overflows, 0x40, 0x3f},
		{"above -2 of float16", &float8.E5M2, half(0xbfff), float8.Overflows, 0xc0, 0xbf},
		// ml_dtypes encodes the quiet NaN as 0x7e. This package encodes it as 0x7f in both
		// formats, as CUDA does.
		{"NaN of float16", &float8.E5M2, half(0x7c01), float8.Overflows, 0x7f, 0},
		{"-NaN of float16", &float8.E5M2, half(0xfc01), float8.Overflows, 0xff, 0},
	} {
		require.Equal(t, c.rounded, c.format.Encode(c.from, c.overflow), "%s to %s", c.name, c.format.Name)
		if c.cut != 0 {
			require.Equal(t, c.cut, c.format.Stochastic(c.from, 0, c.overflow), "%s to %s, truncated", c.name, c.format.Name)
		}
	}
}

// CallTheOperator: sums, differences, products and quotients of all pairs of codes. They are
// computed in float32, as in ml_dtypes. The results equal the exact result rounded once, so the
// intermediate float32 makes no difference.
func TestArithmeticAsMLDtypes(t *testing.T) {
	for _, f := range wide {
		search := newReference(f)
		values := f.Table()
		for i, a := range values {
			for j, b := range values {
				x, y := float64(a), float64(b)
				for op, c := range [...]struct {
					single float32
					double float64 // exact for sums and products, precise enough for quotients
				}{{a + b, x + y}, {a - b, x - y}, {a * b, x * y}, {a / b, x / y}} {
					got, want := f.Encode(c.single, float8.Overflows), search.encode64(c.double, float8.Overflows)
					if got != want && c.double == c.double {
						require.Equal(t, want, got, "%s: operation %d of %#x and %#x", f.Name, op, i, j)
					}
				}
			}
		}
	}
}

// ConvertFromRoundToNearest: the midpoint of two neighbours rounds to the even one, and a value
// slightly to either side rounds to the nearer one.
func TestMiddlesAsMLDtypes(t *testing.T) {
	for _, f := range formats {
		for code := byte(0); code < f.Max; code++ {
			low, high := f.Decode(code), f.Decode(code+1)
			middle := (low + high) / 2
			require.Equal(t, code+code&1, f.Encode(middle, float8.Overflows), "%s %#x", f.Name, code)
			require.Equal(t, code, f.Encode(math.Nextafter32(middle, low), float8.Overflows), "%s %#x", f.Name, code)
			require.Equal(t, code+1, f.Encode(math.Nextafter32(middle, high), float8.Overflows), "%s %#x", f.Name, code)
		}
	}
}

// FLOAT_VALUES and INT_VALUES survive a round trip through each format.
func TestRoundTripAsMLDtypes(t *testing.T) {
	floats := []float32{0, 1, 0.5, 4}
	for _, c := range []struct {
		format   *float8.Format
		integers []float32
		floats   []float32
	}{
		{&float8.E2M1, []float32{0, 1, 2, 3, 4, 6}, nil},
		{&float8.E4M3, integers(9, 3)[:54], []float32{3.5, 5, 7, 0.125, 1.125, 0.875}},
		{&float8.E5M2, integers(16, 2), []float32{3.5, 5, 7, 0.25, 1.25, 0.75}},
	} {
		for _, x := range slices.Concat(c.integers, floats, c.floats, []float32{c.format.Greatest()}) {
			for _, x := range []float32{x, -x} {
				same(t, float64(x), encoded(c.format, x, float8.Overflows), "%s", c.format.Name)
			}
		}
	}
}

// integers returns the integers with the given number of bits after the leading one, up to a
// power of two.
func integers(power, bits int) (list []float32) {
	for n := range power {
		for x := 1 << n; x < 2<<n; x += 1 << max(0, n-bits) {
			list = append(list, float32(x))
		}
	}
	return list
}

// NumericLimits of E8M0.
func TestScalesAsMLDtypes(t *testing.T) {
	for code := range 255 {
		require.Equal(t, float32(math.Ldexp(1, code-127)), float8.E8M0(code).Float32())
	}
}

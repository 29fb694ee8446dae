package float8_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
)

// The conformance tests check this package against the test data of other projects. Each test names its
// project. Only the data comes from the project, not the test code. If this package differs on purpose, the
// test says so.

// bfloat16 returns the value whose bits are the upper half of a float32.
func bfloat16(code uint16) float32 { return math.Float32frombits(uint32(code) << 16) }

// same requires equal values including their signs. All NaNs count as equal.
func same(t *testing.T, want, got float64, name string, args ...any) {
	t.Helper()
	if want != want && got != got {
		return
	}
	if want != got || math.Signbit(want) != math.Signbit(got) {
		require.FailNow(t, "not the same", append([]any{"want %v, got %v: " + name, want, got}, args...)...)
	}
}

// matrices quantizes x in both orientations, each in one call.
func matrices(s float8.Set, scaling float8.Scaling, f *float8.Format, x []float32, rows, cols int, rule *float8.Rule) (rowwise, columnwise float8.Matrix) {
	open := func(rows, cols int) float8.Matrix {
		size := float8.LayoutOf(scaling, f, rows, cols).Size
		return float8.Open(make([]byte, max(size, 16)), scaling, f, rows, cols)
	}
	rowwise, columnwise = open(rows, cols), open(cols, rows)
	s.QuantizeRows(&rowwise, x, rule, 0, rows)
	s.QuantizeColumns(&columnwise, x, rule, 0, cols)
	return rowwise, columnwise
}

// transposed returns the transpose of a matrix.
func transposed[T any](x []T, rows, cols int) []T {
	t := make([]T, len(x))
	for i := range rows {
		for j := range cols {
			t[j*rows+i] = x[i*cols+j]
		}
	}
	return t
}

// The tables of ONNX: operator Cast, version 24 (docs/Operators.md, technical/float8.md),
// and the numbers of its node tests (onnx/backend/test/case/node/cast.py).

// TestCastAsONNX casts with saturate 1 and 0. Both keep the sign of NaN.
func TestCastAsONNX(t *testing.T) {
	inf, nan, zero := float32(math.Inf(1)), float32(math.NaN()), math.Float32frombits(0)
	for _, c := range []struct {
		name                                 string
		x                                    float32
		e4m3, e5m2, e4m3Plainly, e5m2Plainly byte
	}{
		{"0", zero, 0, 0, 0, 0},
		{"NaN", nan, 0x7f, 0x7f, 0x7f, 0x7f},
		{"infinity", inf, 0x7e, 0x7b, 0x7f, 0x7c},
		{"[x] above the greatest", 1e6, 0x7e, 0x7b, 0x7f, 0x7c},
		{"half a step above the greatest of e4m3, to even", 464, 0x7e, 0x5f, 0x7e, 0x5f},
		{"more than that", 464.1, 0x7e, 0x5f, 0x7f, 0x5f},
		{"half a step above the greatest of e5m2, to even", 61440, 0x7e, 0x7b, 0x7f, 0x7c},
		{"less than that", 61439, 0x7e, 0x7b, 0x7f, 0x7b},
		{"else", 0.47892547, 0x2f, 0x38, 0x2f, 0x38},
	} {
		for sign, x := range map[byte]float32{0: c.x, 0x80: float32(math.Copysign(float64(c.x), -1))} {
			require.Equal(t, c.e4m3|sign, float8.E4M3.Encode(x, float8.Saturate), "%s, %#x", c.name, sign)
			require.Equal(t, c.e5m2|sign, float8.E5M2.Encode(x, float8.Saturate), "%s, %#x", c.name, sign)
			require.Equal(t, c.e4m3Plainly|sign, float8.E4M3.Encode(x, float8.Overflows), "%s, %#x", c.name, sign)
			require.Equal(t, c.e5m2Plainly|sign, float8.E5M2.Encode(x, float8.Overflows), "%s, %#x", c.name, sign)
		}
	}
}

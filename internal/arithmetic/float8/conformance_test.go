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

package float8_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/float8"
)

// The conformance tests check this package against the test data of other projects, which each
// test names. The data is theirs, the test code is not. Where this package made a different
// choice, the test says so.

// rounded is an encoder that works differently from Encode and from the search in the other
// tests: it rounds a float32 on the bits of its significand, at the exponent of the smallest
// normal value if it is below that, and returns the value. It does not saturate. PyTorch
// simulates its formats by this method (test_floatx.py, simulate_fp8_precision). The bits that
// a subnormal loses are kept as a sticky bit.
func rounded(f *float8.Format, x float32) float64 {
	if x != x || math.IsInf(float64(x), 0) {
		return overflowed(f, float64(x))
	}
	bits := math.Float32bits(x) &^ (1 << 31)
	exponent, significand := int(bits>>23)-127, uint64(bits&(1<<23-1)|1<<23)
	if bits < 1<<23 {
		exponent, significand = -126, uint64(bits)
	}
	if lost := 1 - f.Bias - exponent; lost > 0 { // below the smallest normal value
		exponent += lost
		lost = min(lost, 32)
		sticky := uint64(0)
		if significand&(1<<lost-1) != 0 {
			sticky = 1
		}
		significand = significand>>lost<<1 | sticky
	} else {
		significand <<= 1
	}
	unit := uint64(1) << (24 - f.Mantissa) // the last bit that is kept
	down := significand &^ (unit - 1)
	switch rest := significand - down; {
	case rest > unit/2, rest == unit/2 && down&unit != 0:
		down += unit
	}
	value := math.Ldexp(float64(down), exponent-24)
	if value > float64(f.Greatest()) {
		return overflowed(f, float64(x))
	}
	return math.Copysign(value, float64(x))
}

// overflowed returns the result for a value above the greatest one.
func overflowed(f *float8.Format, x float64) float64 {
	switch {
	case f.NaN == f.Max: // the format has neither
		return math.Copysign(float64(f.Greatest()), x)
	case f.Inf == 0 || x != x:
		return math.NaN()
	}
	return math.Copysign(math.Inf(1), x)
}

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

// encoded returns the value of the code of x.
func encoded(f *float8.Format, x float32, o float8.Overflow) float64 {
	return float64(f.Decode(f.Encode(x, o)))
}

// float16 maps the bit pattern of each float32 that is exactly a float16 to that float16.
var float16 = func() map[uint32]float8.Float16 {
	codes := map[uint32]float8.Float16{}
	for code := range 1 << 16 {
		codes[math.Float32bits(float8.Float16(code).Float32())] = float8.Float16(code)
	}
	return codes
}()

// matrices quantizes x in both orientations, each in one call.
func matrices(s float8.Set, scaling float8.Scaling, f *float8.Format, x []float32, rows, cols int, rule *float8.Rule) (rowwise, columnwise float8.Matrix) {
	open := func(rows, cols int) float8.Matrix {
		size := float8.Size(scaling, f, rows, cols)
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

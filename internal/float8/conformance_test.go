package float8_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/float8"
)

// The conformance tests hold this package to the numbers that other projects test
// theirs with, named where they are used. The numbers are theirs, the tests are not;
// where this package decided otherwise, the test says so.

// rounded is an encoder of another kind than Encode and than the search of the other
// tests: it rounds a float32 on the bits of its significand, at the exponent of the
// least normal value if it is below, and returns the value. It does not saturate. It is
// the method by which PyTorch simulates its formats (test_floatx.py,
// simulate_fp8_precision), with the bits that a subnormal loses kept as a sticky one.
func rounded(f *float8.Format, x float32) float64 {
	if x != x || math.IsInf(float64(x), 0) {
		return overflowed(f, float64(x))
	}
	bits := math.Float32bits(x) &^ (1 << 31)
	exponent, significand := int(bits>>23)-127, uint64(bits&(1<<23-1)|1<<23)
	if bits < 1<<23 {
		exponent, significand = -126, uint64(bits)
	}
	if lost := 1 - f.Bias - exponent; lost > 0 { // below the least normal value
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
	unit := uint64(1) << (24 - f.Mantissa) // of the last bit that is kept
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

// overflowed is what becomes of a value above the greatest one.
func overflowed(f *float8.Format, x float64) float64 {
	switch {
	case f.NaN == f.Max: // has neither
		return math.Copysign(float64(f.Greatest()), x)
	case f.Inf == 0 || x != x:
		return math.NaN()
	}
	return math.Copysign(math.Inf(1), x)
}

// same demands equal values, signs and all; every NaN is one.
func same(t *testing.T, want, got float64, name string, args ...any) {
	t.Helper()
	if want != want && got != got {
		return
	}
	if want != got || math.Signbit(want) != math.Signbit(got) {
		require.FailNow(t, "not the same", append([]any{"want %v, got %v: " + name, want, got}, args...)...)
	}
}

// encoded is the value of the code of x.
func encoded(f *float8.Format, x float32, o float8.Overflow) float64 {
	return float64(f.Decode(f.Encode(x, o)))
}

// float16 has the float16 of every bit pattern of a float32 that is one.
var float16 = func() map[uint32]float8.Float16 {
	codes := map[uint32]float8.Float16{}
	for code := range 1 << 16 {
		codes[math.Float32bits(float8.Float16(code).Float32())] = float8.Float16(code)
	}
	return codes
}()

// matrices quantizes x in both orientations, as one piece.
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

// transposed is a matrix the other way round.
func transposed[T any](x []T, rows, cols int) []T {
	t := make([]T, len(x))
	for i := range rows {
		for j := range cols {
			t[j*rows+i] = x[i*cols+j]
		}
	}
	return t
}

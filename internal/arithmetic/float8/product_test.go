package float8_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// matrixOf returns a matrix of random numbers.
func matrixOf(r *rand.Rand, s float8.Scaling, f *float8.Format, rows, cols int) float8.Matrix {
	m := float8.Open(make([]byte, float8.LayoutOf(s, f, rows, cols).Size), s, f, rows, cols)
	float8.Portable.QuantizeRows(&m, spread(r, rows*cols), &float8.Rule{Scale: 3}, 0, rows)
	return m
}

// forms are pairs of a scaling and a format, with every scaling and every format.
var forms = []struct {
	scaling float8.Scaling
	format  *float8.Format
}{
	{float8.PerTensor, &float8.E4M3}, {float8.PerTensor, &float8.E5M2}, {float8.Rows128, &float8.E4M3},
	{float8.Tiles128, &float8.E5M2}, {float8.MX32, &float8.E4M3}, {float8.MX32, &float8.E5M2}, {float8.NV16, &float8.E2M1},
}

// sameNumbers compares bits. All NaNs count as equal.
func sameNumbers(t *testing.T, want, got []float32, label ...any) {
	t.Helper()
	for i, w := range want {
		if math.Float32bits(w) != math.Float32bits(got[i]) && (w == w || got[i] == got[i]) {
			require.Equal(t, w, got[i], "%v: element %d", label, i)
		}
	}
}

// All sets give the same bits, for every pair of encodings and shapes around every edge, and
// write only their own part of C.
func TestMultiplyInEverySet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for round := range 150 {
		fa, fb := forms[round%len(forms)], forms[round/len(forms)%len(forms)]
		m, n, k := 1+r.IntN(40), 1+r.IntN(80), 1+r.IntN(400)
		if round%10 == 0 {
			n = 500 + r.IntN(60)
		}
		a, b := matrixOf(r, fa.scaling, fa.format, m, k), matrixOf(r, fb.scaling, fb.format, n, k)
		row, col := r.IntN(m), r.IntN(n)
		start := spread(r, m*n)
		first := round%2 == 0
		run := func(s float8.Set) []float32 {
			c := append([]float32(nil), start...)
			s.Multiply(c[row*n+col:], n, &a, &b, row, m-row, col, n-col, first, make([]float32, float8.Scratch(n, k)))
			return c
		}
		want := run(float8.Portable)
		for _, s := range sets() {
			sameNumbers(t, want, run(s), s, fmt.Sprintf("%d×%d×%d from %d,%d, first %t", m, n, k, row, col, first), fa, fb)
		}
	}
}

// Matrices that are too large for the caches are read and written in a different order, but give the same bits,
// whether or not rows of codes begin at lines of memory.
func TestLargeMatricesInEverySet(t *testing.T) {
	testkit.Slow(t)
	const cols = 1041
	r := rand.New(rand.NewPCG(12, 12))
	x := spread(r, 2176*cols)
	for i := range x {
		x[i] *= 1e6
	}
	for round, c := range []struct{ form, rows int }{{0, 2176}, {2, 2175}, {4, 2176}, {6, 2176}, {3, 2176}} {
		form, rows := forms[c.form], c.rows
		rule := &float8.Rule{Scale: 1e-3}
		if round == 3 {
			rule.Random = &vector.Philox{Seed: 1}
		}
		want := matrixOfZeros(form.scaling, form.format, cols, rows)
		float8.Portable.QuantizeColumns(want, x[:rows*cols], rule, 0, cols)
		for _, s := range sets()[1:] {
			got := matrixOfZeros(form.scaling, form.format, cols, rows)
			s.QuantizeColumns(got, x[:rows*cols], rule, 0, cols)
			label := fmt.Sprintf("%v, %s/%d, %d rows", s, form.format.Name, form.scaling, rows)
			sameQuantized(t, want, got, label)
			one, other := make([]float32, rows*cols), make([]float32, rows*cols+1)
			for i := range 2 { // aligned to a line of memory, and not
				float8.Portable.Dequantize(one, want, 0, cols)
				s.Dequantize(other[i:][:rows*cols], want, 0, cols)
				sameNumbers(t, one, other[i:][:rows*cols], label)
			}
		}
	}
}

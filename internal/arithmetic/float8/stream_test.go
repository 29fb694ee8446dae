package float8_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// Matrices that are too large for the caches, which are read and written in a different order,
// give the same bits, both if rows of codes begin at lines of memory and if they do not.
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

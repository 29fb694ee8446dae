package float8_test

import (
	"math/rand/v2"
	"testing"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// TestNothingOutsideIsTouched places every operand at the edge of readable memory, with and
// without zeros among the codes. A fault ends the test binary.
func TestNothingOutsideIsTouched(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, s := range sets() {
		for round := range 240 {
			form := forms[round%len(forms)]
			atEnd := round%4 != 0
			rows, cols := 1+r.IntN(40), 1+r.IntN(150)
			if round%5 == 0 {
				rows, cols = 16*(1+r.IntN(5)), 32*(1+r.IntN(5))
			}
			matrix := func(rows, cols int) *float8.Matrix {
				size := float8.LayoutOf(form.scaling, form.format, rows, cols).Size
				whole := (size + 3) / 4 * 4 // rounded up, so that an operand aligned to 4 stays aligned
				m := float8.Open(testkit.Guarded[byte](t, whole, atEnd)[:size], form.scaling, form.format, rows, cols)
				return &m
			}
			x := testkit.Guarded[float32](t, rows*cols, atEnd)
			for i := range x {
				x[i] = float32(r.NormFloat64()) * float32(i%3)
			}
			row, column := matrix(rows, cols), matrix(cols, rows)
			rule := &float8.Rule{Scale: 1e-3 * float32(1+round%2*1000), Down: round%3 == 0}
			if round%2 == 1 {
				rule.Random = &vector.Philox{Seed: uint64(round)}
			}
			s.QuantizeRows(row, x, rule, 0, rows)
			s.QuantizeColumns(column, x, rule, 0, cols)
			s.Amax(x)
			s.Dequantize(x, row, 0, rows)
			s.DequantizeTransposed(x, column, 0, rows)
			s.Multiply(testkit.Guarded[float32](t, rows*rows, atEnd), rows, row, row, 0, rows, 0, rows, round%2 == 0, testkit.Guarded[float32](t, float8.Scratch(rows, cols), true))
			s.Multiply(testkit.Guarded[float32](t, cols*cols, atEnd), cols, column, column, 0, cols, 0, cols, round%2 == 0, testkit.Guarded[float32](t, float8.Scratch(cols, rows), true))
		}
	}
}

// TestNothingOutsideOfLargeMatrices does the same for matrices that are too large for the caches. Reading ahead
// and streaming writes must stay inside too.
func TestNothingOutsideOfLargeMatrices(t *testing.T) {
	const rows, cols = 2176, 1024
	x := testkit.Guarded[float32](t, rows*cols, true)
	for i := range x {
		x[i] = float32(i%1000) - 500
	}
	for _, s := range sets() {
		for _, form := range []int{0, 4, 6} {
			form := forms[form]
			m := float8.Open(testkit.Guarded[byte](t, float8.LayoutOf(form.scaling, form.format, cols, rows).Size, true), form.scaling, form.format, cols, rows)
			s.QuantizeColumns(&m, x, &float8.Rule{Scale: 1}, 0, cols)
			s.Dequantize(x, &m, 0, cols)
		}
	}
}

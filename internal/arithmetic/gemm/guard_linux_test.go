package gemm_test

import (
	"math/rand/v2"
	"testing"

	"github.com/weir-ml/weir/internal/arithmetic/gemm"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// guarded copies x to memory between two inaccessible pages.
func guarded(t *testing.T, x []float32, atEnd bool) []float32 {
	y := testkit.Guarded[float32](t, len(x), atEnd)
	copy(y, x)
	return y
}

// TestNothingOutsideIsTouched places every operand at the edge of readable memory. A fault ends
// the test binary.
func TestNothingOutsideIsTouched(t *testing.T) {
	for name, set := range available() {
		t.Run(name, func(t *testing.T) {
			p := gemm.New(set)
			rng := rand.New(rand.NewPCG(9, 10))
			for round := range 400 {
				q := draw(rng, 1+rng.IntN(33), 1+rng.IntN(70), 1+rng.IntN(20), round, rng.IntN(2))
				if round%8 == 0 {
					q = draw(rng, 1+rng.IntN(20), 129+rng.IntN(40), 1+rng.IntN(70), round/8, 0)
				}
				if round%8 == 2 {
					q = draw(rng, 32+rng.IntN(65), 1+rng.IntN(40), 128+rng.IntN(20), round/8%8, rng.IntN(2))
				}
				a, b, c := guarded(t, q.a, round%3 > 0), guarded(t, q.b, round%3 > 0), guarded(t, q.c, round%3 > 0)
				p.Multiply(q.m, q.n, q.k, gemm.Matrix{Data: a, Stride: q.lda, Trans: q.transA},
					gemm.Matrix{Data: b, Stride: q.ldb, Trans: q.transB}, c, q.ldc, q.accumulate)
				sameBits(t, q.run(p), c, q)
			}
		})
	}
}

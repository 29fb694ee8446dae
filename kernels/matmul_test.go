package kernels_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

// randomProduct draws a product with random options and its operands.
func (b *bench) randomProduct(largest int) (op kernels.MatMul) {
	return b.product(1+b.rng.IntN(largest), 1+b.rng.IntN(largest), 1+b.rng.IntN(largest))
}

// product draws a product of the given shape with random options, and its operands.
func (b *bench) product(m, n, k int) kernels.MatMul {
	op := kernels.MatMul{M: m, N: n, K: k, TransA: b.rng.IntN(2) == 0, TransB: b.rng.IntN(2) == 0, Accumulate: b.rng.IntN(2) == 0}
	op.A, op.B, op.C = b.random(op.M*op.K), b.random(op.K*op.N), b.random(op.M*op.N)
	return op
}

// TestMatMulOfThreads requires the same bits for every number of threads, and for AVX2, AVX-512
// and NEON.
func TestMatMulOfThreads(t *testing.T) {
	for _, sets := range [][]kernels.Instructions{{kernels.Portable}, {kernels.AVX2, kernels.AVX512, kernels.NEON}} {
		var want [][]float32
		for _, set := range sets {
			for _, threads := range []int{1, 2, 3, 5, 16} {
				if !set.Available() {
					continue
				}
				b := newBenchWith(t, kernels.HostConfig{Instructions: set, Threads: threads})
				var got [][]float32
				for i := range 24 {
					op := b.randomProduct(300)
					if i < 8 { // few rows, divided by rows or by columns
						op = b.product(64+b.rng.IntN(30), []int{300, 900}[i%2], 100)
					}
					require.NoError(t, b.MatMul(op))
					got = append(got, b.read(op.C))
					b.Reclaim(0)
				}
				if want == nil {
					want = got
				}
				for i := range want {
					sameBits(t, want[i], got[i], fmt.Sprint(set), threads)
				}
			}
		}
	}
}

// Two threads get equal shares, and neither gets few columns of a wide B, if the shape allows
// it; small products are not divided.
func TestProductsAreCutEvenly(t *testing.T) {
	for _, c := range []struct {
		op     kernels.MatMul
		parts  int
		byRows bool
	}{
		{kernels.MatMul{M: 512, N: 512, K: 512}, 2, true},
		{kernels.MatMul{M: 768, N: 768, K: 3072}, 2, false},
		{kernels.MatMul{M: 1024, N: 1024, K: 1024}, 2, false},
		{kernels.MatMul{M: 768, N: 3072, K: 768}, 6, false},
		{kernels.MatMul{M: 256, N: 50257, K: 256, TransB: true}, 8, false},
		{kernels.MatMul{M: 256, N: 256, K: 1024, TransB: true}, 2, true},
		{kernels.MatMul{M: 64, N: 256, K: 1024, TransB: true}, 2, false},
		{kernels.MatMul{M: 64, N: 1024, K: 256}, 2, false},
		{kernels.MatMul{M: 64, N: 256, K: 256}, 2, true},
		{kernels.MatMul{M: 1024, N: 256, K: 64, TransA: true}, 2, true},
		{kernels.MatMul{M: 32, N: 256, K: 64}, 1, false},
		{kernels.MatMul{M: 1, N: 1, K: 1}, 1, false},
	} {
		parts, byRows := kernels.ProductParts(c.op, 2)
		require.Equal(t, c.parts, parts, c.op)
		if parts > 1 {
			require.Equal(t, c.byRows, byRows, c.op)
		}
		alone, _ := kernels.ProductParts(c.op, 1)
		require.Equal(t, 1, alone)
	}
}

// A row of the product does not depend on the other rows of A.
func TestMatMulRowsAreIndependent(t *testing.T) {
	b := newBench(t)
	const m, n, k = 150, 70, 130
	a, w := b.draw(m*k), b.draw(k*n)
	product := func(a []float32, m int) []float32 {
		op := kernels.MatMul{A: b.put(a), B: b.put(w), C: b.random(m * n), M: m, N: n, K: k}
		require.NoError(t, b.MatMul(op))
		return b.read(op.C)
	}
	all := product(a, m)
	for _, rows := range []int{1, 2, 63, 64, 65, 129} {
		sameBits(t, all[:rows*n], product(a[:rows*k], rows), "the first rows alone")
	}
}

// A zero does not hide a NaN.
func TestMatMulKeepsNaN(t *testing.T) {
	b := newBench(t)
	w := b.draw(64)
	w[9] = float32(math.NaN())
	for form := range 4 {
		op := kernels.MatMul{A: b.put(make([]float32, 64)), B: b.put(w), C: b.random(64), M: 8, N: 8, K: 8, TransA: form&1 != 0, TransB: form&2 != 0}
		require.NoError(t, b.MatMul(op))
		nans := 0
		for _, v := range b.read(op.C) {
			if v != v {
				nans++
			}
		}
		require.Equal(t, 8, nans, "a column of the product")
	}
}

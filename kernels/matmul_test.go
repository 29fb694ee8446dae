package kernels_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

// plainProduct is the definition: each element alone, k ascending, each product
// and each sum rounded.
func plainProduct(op kernels.MatMul, a, b, c []float32) []float32 {
	out := make([]float32, op.M*op.N)
	for i := range op.M {
		for j := range op.N {
			var s float32
			if op.Accumulate {
				s = c[i*op.N+j]
			}
			for k := range op.K {
				x, y := i*op.K+k, k*op.N+j
				if op.TransA {
					x = k*op.M + i
				}
				if op.TransB {
					y = j*op.K + k
				}
				s += float32(a[x] * b[y])
			}
			out[i*op.N+j] = s
		}
	}
	return out
}

// The blocks, the packing and gonum's kernels change no bit: every form of every
// shape is the plain sum.
func TestMatMulIsThePlainSum(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("gonum has assembly for amd64 alone; elsewhere the compiler may fuse products and sums")
	}
	sizes := []int{1, 2, 3, 4, 5, 7, 8, 9, 15, 17, 31, 63, 64, 65, 127, 128, 129, 200}
	b := newBench(t)
	for range 150 {
		op := kernels.MatMul{
			M: sizes[b.rng.IntN(len(sizes))], N: sizes[b.rng.IntN(len(sizes))], K: sizes[b.rng.IntN(len(sizes))],
			TransA: b.rng.IntN(2) == 0, TransB: b.rng.IntN(2) == 0, Accumulate: b.rng.IntN(2) == 0,
		}
		x, y, z := b.draw(op.M*op.K), b.draw(op.K*op.N), b.draw(op.M*op.N)
		op.A, op.B, op.C = b.put(x), b.put(y), b.put(z)
		require.NoError(t, b.MatMul(op))
		sameBits(t, plainProduct(op, x, y, z), b.read(op.C), fmt.Sprintf("%+v", op))
		b.Reclaim(0)
	}
}

// A row of the product depends on its row of A alone.
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

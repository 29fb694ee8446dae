package product_test

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/product"
)

// guarded copies x to memory between two inaccessible pages. It ends at the second page if
// atEnd is set, or else begins after the first.
func guarded(t *testing.T, x []float32, atEnd bool) []float32 {
	page := syscall.Getpagesize()
	size := (4*len(x) + page - 1) / page * page
	region, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(region)) })
	require.NoError(t, syscall.Mprotect(region[:page], syscall.PROT_NONE))
	require.NoError(t, syscall.Mprotect(region[page+size:], syscall.PROT_NONE))
	inside := region[page : page+size]
	if atEnd {
		inside = inside[size-4*len(x):]
	}
	y := unsafe.Slice((*float32)(unsafe.Pointer(&inside[0])), len(x))
	copy(y, x)
	return y
}

// TestNothingOutsideIsTouched places every operand at the edge of readable memory. A fault ends
// the test binary.
func TestNothingOutsideIsTouched(t *testing.T) {
	for name, set := range available() {
		t.Run(name, func(t *testing.T) {
			p := product.New(set)
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
				p.Multiply(q.m, q.n, q.k, product.Matrix{Data: a, Stride: q.lda, Trans: q.transA},
					product.Matrix{Data: b, Stride: q.ldb, Trans: q.transB}, c, q.ldc, q.accumulate)
				sameBits(t, q.run(p), c, q)
			}
		})
	}
}

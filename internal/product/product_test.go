package product_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/cpufeature"
	"github.com/weir-ml/weir/internal/product"
)

// available are the instruction sets that this processor has.
func available() map[string]product.Instructions {
	all := map[string]product.Instructions{"portable": product.Portable}
	if cpufeature.AVX2FMA {
		all["AVX2"] = product.AVX2
	}
	if cpufeature.AVX512 {
		all["AVX-512"] = product.AVX512
	}
	return all
}

// problem is one product with its operands.
type problem struct {
	m, n, k        int
	transA, transB bool
	accumulate     bool
	lda, ldb, ldc  int
	a, b, c        []float32
}

func (q problem) String() string {
	return fmt.Sprintf("%d×%d×%d, transposed %t %t, accumulate %t, strides %d %d %d", q.m, q.n, q.k, q.transA, q.transB, q.accumulate, q.lda, q.ldb, q.ldc)
}

// draw fills a problem of the given shape; form and pad choose the rest.
func draw(rng *rand.Rand, m, n, k, form, pad int) problem {
	q := problem{m: m, n: n, k: k, transA: form&1 != 0, transB: form&2 != 0, accumulate: form&4 != 0}
	q.lda, q.ldb, q.ldc = k+pad, n+pad, n+pad
	rowsA, rowsB := m, k
	if q.transA {
		q.lda, rowsA = m+pad, k
	}
	if q.transB {
		q.ldb, rowsB = k+pad, n
	}
	random := func(rows, stride, pad int) []float32 {
		x := make([]float32, rows*stride-pad)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	q.a, q.b, q.c = random(rowsA, q.lda, pad), random(rowsB, q.ldb, pad), random(m, q.ldc, pad)
	return q
}

func (q problem) at(i, l int) float32 {
	if q.transA {
		return q.a[l*q.lda+i]
	}
	return q.a[i*q.lda+l]
}

func (q problem) bt(l, j int) float32 {
	if q.transB {
		return q.b[j*q.ldb+l]
	}
	return q.b[l*q.ldb+j]
}

// run computes into a copy of c.
func (q problem) run(p *product.Product) []float32 {
	c := append([]float32(nil), q.c...)
	p.Multiply(q.m, q.n, q.k, product.Matrix{Data: q.a, Stride: q.lda, Trans: q.transA},
		product.Matrix{Data: q.b, Stride: q.ldb, Trans: q.transB}, c, q.ldc, q.accumulate)
	return c
}

// want is the definition: one chain of additions per element, k ascending.
func (q problem) want(add func(a, b, c float32) float32) []float32 {
	c := append([]float32(nil), q.c...)
	for i := range q.m {
		for j := range q.n {
			var s float32
			if q.accumulate {
				s = c[i*q.ldc+j]
			}
			for l := range q.k {
				s = add(q.at(i, l), q.bt(l, j), s)
			}
			c[i*q.ldc+j] = s
		}
	}
	return c
}

// twice rounds the product and the sum.
func twice(a, b, c float32) float32 { return c + float32(a*b) }

// once rounds a·b + c once. The product is exact in float64. The sum there is
// rounded to odd: where it is not exact its last bit is set, so that the second
// rounding, to float32, sees on which side of a middle it lay (Boldo and Melquiond 2008).
func once(a, b, c float32) float32 {
	x, y := float64(a)*float64(b), float64(c)
	s := x + y
	if math.IsInf(s, 0) || s != s {
		return float32(s)
	}
	t := s - x
	rest := (x - (s - t)) + (y - t)
	if bits := math.Float64bits(s); rest != 0 && bits&1 == 0 {
		if (rest > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}

func sameBits(t *testing.T, want, got []float32, what ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) && (want[i] == want[i] || got[i] == got[i]) {
			require.Failf(t, "bits differ", "%v: element %d is %v, want %v", fmt.Sprint(what...), i, got[i], want[i])
		}
	}
}

// TestEveryElementIsOneChain compares all forms of many shapes with the definition.
func TestEveryElementIsOneChain(t *testing.T) {
	for name, set := range available() {
		t.Run(name, func(t *testing.T) {
			add := once
			if set == product.Portable {
				add = twice
			}
			p := product.New(set)
			rng := rand.New(rand.NewPCG(1, 2))
			for round := range 300 {
				q := draw(rng, 1+rng.IntN(70), 1+rng.IntN(70), 1+rng.IntN(70), round, rng.IntN(3))
				sameBits(t, q.want(add), q.run(p), q)
			}
			for form := range 8 {
				for _, s := range [][3]int{{15, 400, 20}, {100, 130, 390}, {3, 1000, 9}, {31, 33, 800}, {200, 5, 3}} {
					q := draw(rng, s[0], s[1], s[2], form, form)
					sameBits(t, q.want(add), q.run(p), q)
				}
			}
		})
	}
}

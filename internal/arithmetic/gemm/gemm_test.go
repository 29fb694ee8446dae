package gemm_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/cpufeature"
	"github.com/weir-ml/weir/internal/arithmetic/gemm"
	"github.com/weir-ml/weir/internal/arithmetic/vector"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// available returns the instruction sets that this processor has.
func available() map[string]vector.Set {
	all := map[string]vector.Set{"portable": vector.Portable}
	if cpufeature.AVX2FMA || cpufeature.NEON {
		all["AVX2"] = vector.AVX2
	}
	if cpufeature.AVX512 {
		all["AVX-512"] = vector.AVX512
	}
	return all
}

// problem is a product with its operands.
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

// draw returns a problem of the given shape; form and pad select the rest.
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

// run computes the product into a copy of c.
func (q problem) run(p *gemm.Multiplier) []float32 {
	c := append([]float32(nil), q.c...)
	p.Multiply(q.m, q.n, q.k, gemm.Matrix{Data: q.a, Stride: q.lda, Trans: q.transA},
		gemm.Matrix{Data: q.b, Stride: q.ldb, Trans: q.transB}, c, q.ldc, q.accumulate)
	return c
}

// want computes the definition: one chain of additions per element, in ascending order of k.
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

// once rounds a·b + c once. The product is exact in float64. The sum is rounded to odd: if it
// is inexact its last bit is set, so that rounding it to float32 is correct next to a midpoint
// too (Boldo and Melquiond 2008).
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

func sameBits(t *testing.T, want, got []float32, args ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) && (want[i] == want[i] || got[i] == got[i]) {
			require.Failf(t, "bits differ", "%v: element %d is %v, want %v", fmt.Sprint(args...), i, got[i], want[i])
		}
	}
}

// TestEveryElementIsOneChain compares all forms of many shapes with the definition.
func TestEveryElementIsOneChain(t *testing.T) {
	testkit.Slow(t)
	for name, set := range available() {
		t.Run(name, func(t *testing.T) {
			add := once
			if set == vector.Portable {
				add = twice
			}
			p := gemm.New(set)
			rng := rand.New(rand.NewPCG(1, 2))
			for round := range 200 {
				q := draw(rng, 1+rng.IntN(70), 1+rng.IntN(70), 1+rng.IntN(70), round, rng.IntN(3))
				sameBits(t, q.want(add), q.run(p), q)
			}
			for form := range 8 {
				for _, s := range [][3]int{{15, 400, 20}, {100, 130, 390}, {3, 1000, 9}, {31, 33, 800}, {200, 5, 3}, {33, 7, 130}, {77, 17, 200}, {90, 3, 2100}, {40, 70, 140}, {29, 1050, 70}} {
					q := draw(rng, s[0], s[1], s[2], form, form)
					sameBits(t, q.want(add), q.run(p), q)
				}
			}
		})
	}
}

// odd are numbers at the limits of the arithmetic.
var odd = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, math.SmallestNonzeroFloat32, -0x1p-127, 0x1p-126, 0x1.fffffep-100,
	math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0x1p-75, -0x1p64,
}

// TestOddNumbers uses operands with denormals, infinities and NaN: the results equal the
// definition's, and no lane or row affects its neighbor.
func TestOddNumbers(t *testing.T) {
	for name, set := range available() {
		add := once
		if set == vector.Portable {
			add = twice
		}
		p := gemm.New(set)
		rng := rand.New(rand.NewPCG(3, 4))
		for round := range 200 {
			q := draw(rng, 1+rng.IntN(30), 1+rng.IntN(70), 1+rng.IntN(12), round, rng.IntN(3))
			kinds := len(odd)
			if round%2 == 0 {
				kinds = 8 // without numbers that propagate
			}
			for _, x := range [][]float32{q.a, q.b, q.c} {
				for i := range x {
					if rng.IntN(3) == 0 {
						x[i] = odd[rng.IntN(kinds)]
					}
				}
			}
			sameBits(t, q.want(add), q.run(p), name, q)
		}
	}
}

// requireBound requires the error bound that the package states.
func requireBound(t *testing.T, q problem, got []float32, args ...any) {
	t.Helper()
	n := float64(q.k+1) * 0x1p-24
	gamma := n / (1 - n)
	for i := range q.m {
		for j := range q.n {
			var want, magnitude float64
			if q.accumulate {
				want = float64(q.c[i*q.ldc+j])
				magnitude = math.Abs(want)
			}
			for l := range q.k {
				term := float64(q.at(i, l)) * float64(q.bt(l, j))
				want += term
				magnitude += math.Abs(term)
			}
			bound := gamma*magnitude + float64(q.k+1)*0x1p-150
			off := math.Abs(float64(got[i*q.ldc+j]) - want)
			require.LessOrEqual(t, off, bound, "%v: %v: row %d, column %d", args, q, i, j)
		}
	}
}

// FuzzMultiply checks the error bound against float64 for any shape and scale, and that nothing
// outside the rows of C is written.
func FuzzMultiply(f *testing.F) {
	for _, s := range [][3]uint16{{1, 1, 1}, {14, 32, 8}, {15, 33, 9}, {29, 70, 70}, {6, 16, 385}, {7, 769, 5}, {300, 9, 40}, {60, 30, 140}} {
		for form := range uint8(8) {
			f.Add(uint64(form), s[0], s[1], s[2], form, int8(form)*20-60)
		}
	}
	f.Fuzz(func(t *testing.T, seed uint64, m, n, k uint16, form uint8, exponent int8) {
		rng := rand.New(rand.NewPCG(seed, 0))
		q := draw(rng, 1+int(m)%400, 1+int(n)%900, 1+int(k)%900, int(form), int(form>>3)%4)
		if q.m*q.n*q.k > 4<<20 || exponent > 90 {
			t.Skip("too much for a test, or for float32")
		}
		for i := range q.a {
			q.a[i] = float32(math.Ldexp(float64(q.a[i]), int(exponent)))
		}
		for name, set := range available() {
			got := q.run(gemm.New(set))
			requireBound(t, q, got, name)
			for i := range got {
				if i%q.ldc >= q.n {
					require.Equal(t, math.Float32bits(q.c[i]), math.Float32bits(got[i]), "between the rows of C")
				}
			}
		}
	})
}

// A part of C has the same bits as in the whole product, for any rows and columns.
func TestPartsAreTheWhole(t *testing.T) {
	for name, set := range available() {
		p := gemm.New(set)
		rng := rand.New(rand.NewPCG(5, 6))
		for form := range 8 {
			q := draw(rng, 61, 150, 100, form, 1)
			whole := q.run(p)
			for range 10 {
				i, j := rng.IntN(q.m), rng.IntN(q.n)
				rows, cols := 1+rng.IntN(q.m-i), 1+rng.IntN(q.n-j)
				c := append([]float32(nil), q.c...)
				a := gemm.Matrix{Data: q.a, Stride: q.lda, Trans: q.transA}
				b := gemm.Matrix{Data: q.b, Stride: q.ldb, Trans: q.transB}
				p.Multiply(rows, cols, q.k, a.From(i, 0), b.From(0, j), c[i*q.ldc+j:], q.ldc, q.accumulate)
				for r := range rows {
					at := (i+r)*q.ldc + j
					sameBits(t, whole[at:at+cols], c[at:at+cols], name, q)
				}
			}
		}
	}
}

// The halves of C have the same bits as in the whole product. With many columns, they are read as streams whose
// rows are apart.
func TestHalvesAreTheWhole(t *testing.T) {
	const cut = 417
	for name, set := range available() {
		p := gemm.New(set)
		rng := rand.New(rand.NewPCG(11, 12))
		for form := range 8 {
			q := draw(rng, 61, 830, 150, form, 0)
			whole, c := q.run(p), append([]float32(nil), q.c...)
			a := gemm.Matrix{Data: q.a, Stride: q.lda, Trans: q.transA}
			b := gemm.Matrix{Data: q.b, Stride: q.ldb, Trans: q.transB}
			p.Multiply(q.m, cut, q.k, a, b, c, q.ldc, q.accumulate)
			p.Multiply(q.m, q.n-cut, q.k, a, b.From(0, cut), c[cut:], q.ldc, q.accumulate)
			sameBits(t, whole, c, name, q)
		}
	}
}

// Multiply panics if an operand is too short.
func TestShortOperandsPanic(t *testing.T) {
	p := gemm.New(vector.Portable)
	x := func(n int) gemm.Matrix { return gemm.Matrix{Data: make([]float32, n), Stride: 4} }
	for _, n := range [][3]int{{15, 16, 16}, {16, 15, 16}, {16, 16, 15}} {
		require.Panics(t, func() { p.Multiply(4, 4, 4, x(n[0]), x(n[1]), make([]float32, n[2]), 4, false) })
	}
}

func TestNothingIsAllocated(t *testing.T) {
	for name, set := range available() {
		p := gemm.New(set)
		q := draw(rand.New(rand.NewPCG(7, 8)), 40, 200, 50, 2, 0)
		a := gemm.Matrix{Data: q.a, Stride: q.lda, Trans: q.transA}
		b := gemm.Matrix{Data: q.b, Stride: q.ldb, Trans: q.transB}
		require.Zero(t, testing.AllocsPerRun(10, func() { p.Multiply(q.m, q.n, q.k, a, b, q.c, q.ldc, true) }), name)
	}
}

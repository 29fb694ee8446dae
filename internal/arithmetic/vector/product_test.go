package vector_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// TestMulAdd compares every form, stride and edge with float64. Elements that do not take part are NaN.
func TestMulAdd(t *testing.T) {
	r := random(t)
	each(t, func(t *testing.T, s vector.Set) {
		for trial := range 600 {
			m, n, k := 1+r.IntN(40), 1+r.IntN(70), 1+r.IntN(40)
			form := []vector.Form{vector.Full, vector.Lower, vector.Upper}[trial%3]
			if form != vector.Full {
				k = m
			}
			ldc, ldb := n+r.IntN(5), n+r.IntN(5)
			a := vector.Matrix{Row: k + r.IntN(5), Col: 1}
			if r.IntN(2) == 0 {
				a = vector.Matrix{Row: 1, Col: m + r.IntN(5)}
			}
			used := func(i, l int) bool {
				return form == vector.Full || form == vector.Lower && l <= i || form == vector.Upper && l >= i
			}
			a.Data = make([]float32, (m-1)*a.Row+(k-1)*a.Col+1)
			for i := range a.Data {
				a.Data[i] = nan
			}
			for i := range m {
				for l := range k {
					if used(i, l) {
						a.Data[i*a.Row+l*a.Col] = float32(r.NormFloat64())
					}
				}
			}
			b := vector.Matrix{Data: draws(r, (k-1)*ldb+n, 1), Row: ldb, Col: 1}
			before := draws(r, (m-1)*ldc+n, 1)
			accumulate := r.IntN(2) == 0
			c := append([]float32{}, before...)
			s.MulAdd(c, ldc, a, b, m, n, k, form, accumulate)
			for at, v := range c {
				i, j := at/ldc, at%ldc
				if j >= n {
					require.Equal(t, before[at], v, "wrote beside")
					continue
				}
				want, size := 0.0, 0.0
				if accumulate {
					want = float64(before[at])
				}
				for l := range k {
					if used(i, l) {
						term := float64(a.Data[i*a.Row+l*a.Col]) * float64(b.Data[l*ldb+j])
						want += term
						size += math.Abs(term)
					}
				}
				requireNear(t, want, float64(k+1)*0x1p-23*(size+math.Abs(want)), v, "element (%d,%d) of %d×%d×%d", i, j, m, n, k)
			}
		}
	})
}

// Rows and columns of a result have the same bits in a smaller product.
func TestMulAddOfAPart(t *testing.T) {
	r := random(t)
	const m, n, k = 19, 70, 23
	a := vector.Matrix{Data: draws(r, m*k, 1), Row: k, Col: 1}
	b := vector.Matrix{Data: draws(r, k*n, 1), Row: n, Col: 1}
	each(t, func(t *testing.T, s vector.Set) {
		whole := make([]float32, m*n)
		s.MulAdd(whole, n, a, b, m, n, k, vector.Full, false)
		for rows := 1; rows <= m; rows++ {
			for _, cols := range []int{1, 5, 15, 16, 17, 31, 32, 33, 64, 69} {
				c := make([]float32, rows*cols)
				s.MulAdd(c, cols, a, b, rows, cols, k, vector.Full, false)
				for i := range rows {
					same(t, whole[i*n:][:cols], c[i*cols:][:cols], "a part")
				}
			}
		}
	})
}

func TestTranspose(t *testing.T) {
	r := random(t)
	each(t, func(t *testing.T, s vector.Set) {
		for range 300 {
			rows, cols := 1+r.IntN(40), 1+r.IntN(40)
			lds, ldd := cols+r.IntN(4), rows+r.IntN(4)
			src, dst := draws(r, (rows-1)*lds+cols, 1), make([]float32, (cols-1)*ldd+rows)
			s.Transpose(dst, ldd, src, lds, rows, cols)
			for at, v := range dst {
				j, i := at/ldd, at%ldd
				if i < rows {
					require.Equal(t, src[i*lds+j], v)
				} else {
					require.Zero(t, v)
				}
			}
		}
	})
}

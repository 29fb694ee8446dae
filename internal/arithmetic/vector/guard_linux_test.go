package vector_test

import (
	"syscall"
	"testing"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
	"github.com/weir-ml/weir/internal/testing/testkit"
)

// guarded returns a page of floats between two inaccessible pages.
func guarded(t *testing.T) []float32 {
	x := testkit.Guarded[float32](t, syscall.Getpagesize()/4, false)
	for i := range x {
		x[i] = 1
	}
	return x
}

// Nothing is read or written beyond a slice, at either end: that would be a fault that cannot
// be recovered.
func TestNothingBeyondASlice(t *testing.T) {
	var x [4][]float32
	for i := range x {
		x[i] = guarded(t)
	}
	each(t, func(t *testing.T, s vector.Set) {
		for n := range 40 {
			for _, atEnd := range []bool{false, true} {
				part := func(i int) []float32 {
					if atEnd {
						return x[i][len(x[i])-n:]
					}
					return x[i][:n:n]
				}
				for _, f := range elementwise {
					slices := make([][]float32, f.slices)
					for i := range slices {
						slices[i] = part(i)
					}
					f.run(s, slices)
				}
				for _, f := range reductions {
					f.run(s, part(0), part(1))
				}
				s.Dropout(part(0), part(1), vector.Philox{}, 0, 1<<31, 0.5)
			}
		}
	})
}

func TestProductNothingBeyondASlice(t *testing.T) {
	x, y, z := guarded(t), guarded(t), guarded(t)
	each(t, func(t *testing.T, s vector.Set) {
		for n := 1; n <= 20; n++ {
			end := func(x []float32) []float32 { return x[len(x)-n*n:] }
			for _, form := range []vector.Form{vector.Full, vector.Lower, vector.Upper} {
				a, b := vector.Matrix{Data: end(x), Row: n, Col: 1}, vector.Matrix{Data: end(y), Row: n, Col: 1}
				s.MulAdd(end(z), n, a, b, n, n, n, form, false)
				a = vector.Matrix{Data: x[:n*n], Row: 1, Col: n}
				b.Data = y[:n*n]
				s.MulAdd(z[:n*n], n, a, b, n, n, n, form, true)
			}
			s.Transpose(end(z), n, end(x), n, n, n)
			s.Transpose(z[:n*n], n, x[:n*n], n, n, n)
		}
	})
}

package vector_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

func TestExpOverItsWholeRange(t *testing.T) {
	each(t, func(t *testing.T, s vector.Set) {
		worst := 0.0
		var got []float32
		for x := range everywhere {
			got = append(got[:0], x...)
			s.Exp(got, 0, 1)
			for i, v := range x {
				want, g := math.Exp(float64(v)), got[i]
				sound := true
				switch {
				case v != v:
					sound = g != g
				case v < -87.33654:
					sound = g == 0
				case v > 88.37:
					sound = g == inf || v < 88.4 && math.Abs(float64(g)/want-1) < 0x1p-22
				default:
					sound = g >= 0x1p-126
					worst = max(worst, math.Abs(float64(g)/want-1))
				}
				if !sound {
					require.Failf(t, "out of bounds", "e^%v is %v", v, g)
				}
			}
		}
		t.Logf("largest relative error 2^%.2f", math.Log2(worst))
		require.Less(t, worst, 0x1p-22)
		require.Greater(t, worst, 0x1p-25, "no float32 is better: the measurement is wrong")
	})
}

// Between -87.34 and 88.37 there are more floats than the steps above can cover.
func TestExpWhereItCounts(t *testing.T) {
	r := random(t)
	x := make([]float32, 1<<18)
	for i := range x {
		x[i] = float32(-87.33 + r.Float64()*175.69)
	}
	each(t, func(t *testing.T, s vector.Set) {
		got := append([]float32{}, x...)
		s.Exp(got, 0, 1)
		for i, v := range x {
			want := math.Exp(float64(v))
			requireNear(t, want, want*0x1p-22, got[i], "e^%v", v)
		}
	})
}

func TestExpOfZeroIsOne(t *testing.T) {
	each(t, func(t *testing.T, s vector.Set) {
		x := []float32{0, 7}
		s.Exp(x[:1], 0, 1)
		s.Exp(x[1:], 7, 3)
		require.Equal(t, []float32{1, 3}, x)
	})
}

// ExpAdd, ExpGrad and Rescale compute the same exponential as Exp.
func TestExpForAttention(t *testing.T) {
	r := random(t)
	const n = 61
	x, top, total, ds, delta := draws(r, n, 20), draws(r, n, 20), draws(r, n, 1), draws(r, n, 1), draws(r, n, 1)
	for i := range x {
		top[i] = max(top[i], x[i])
	}
	x[0], top[0], x[1], top[1], x[2], top[2] = -inf, 3, nan, 0, -inf, -inf
	each(t, func(t *testing.T, s vector.Set) {
		want := make([]float32, n)
		for i := range x {
			want[i] = x[i] - top[i]
		}
		s.Exp(want, 0, 1)

		p, sums := append([]float32{}, x...), append([]float32{}, total...)
		s.ExpAdd(p, top, sums)
		same(t, want, p, "ExpAdd")
		for i := range p {
			require.Equal(t, math.Float32bits(total[i]+want[i])&0x7fffffff, math.Float32bits(sums[i])&0x7fffffff)
		}
		p, grad := append([]float32{}, x...), append([]float32{}, ds...)
		s.ExpGrad(p, grad, top, delta, 0.3)
		same(t, want, p, "ExpGrad")
		for i, w := range want {
			g := 0.3 * float64(w) * (float64(ds[i]) - float64(delta[i]))
			requireNear(t, g, 0x1p-21*(math.Abs(g)+math.Abs(float64(w))), grad[i], "element %d of ds", i)
		}
		scale, old := make([]float32, n), append([]float32{}, x...)
		sums = append([]float32{}, total...)
		s.Rescale(scale, old, top, sums)
		same(t, want, scale, "Rescale")
		same(t, top, old, "the new top")
		for i, w := range want {
			want[i] = w * total[i]
		}
		same(t, want, sums, "the rescaled sum")
	})
}

func TestSumExpAndLargest(t *testing.T) {
	r := random(t)
	each(t, func(t *testing.T, s vector.Set) {
		for n := range 70 {
			x := draws(r, n, 5)
			top := s.Largest(x)
			want := -inf
			for _, v := range x {
				want = max(want, v)
			}
			require.Equal(t, want, top)
			var sum float64
			for _, v := range x {
				sum += math.Exp(float64(v) - float64(top))
			}
			require.InDelta(t, sum, s.SumExp(x, top), sum*0x1p-21+1e-300)
		}
		require.Equal(t, float32(-3), s.Largest([]float32{nan, -3, nan, -4}))
		require.Equal(t, -inf, s.Largest([]float32{nan}))
		require.Equal(t, inf, s.Largest([]float32{0, inf}))
		require.True(t, math.IsNaN(s.SumExp([]float32{1, nan}, 1)))
		require.Equal(t, 0.0, s.SumExp([]float32{-inf}, 1))
	})
}

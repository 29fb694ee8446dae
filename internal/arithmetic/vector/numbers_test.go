package vector_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// Additions and products give the results of float32, for all pairs of extremes.
func TestArithmeticOfExtremes(t *testing.T) {
	extremes := []float32{0, float32(math.Copysign(0, -1)), 1, -1, inf, -inf, nan, math.SmallestNonzeroFloat32, -math.MaxFloat32, math.MaxFloat32, 0x1p-126, 1 + 0x1p-23}
	var x, y []float32
	for _, a := range extremes {
		for _, b := range extremes {
			x, y = append(x, a), append(y, b)
		}
	}
	want := func(f func(a, b float32) float32) []float32 {
		z := make([]float32, len(x))
		for i := range z {
			z[i] = f(x[i], y[i])
		}
		return z
	}
	each(t, func(t *testing.T, s vector.Set) {
		z := append([]float32{}, x...)
		s.Add(z, y)
		same(t, want(func(a, b float32) float32 { return a + b }), z, "Add")
		s.Sum(z, x, y)
		same(t, want(func(a, b float32) float32 { return a + b }), z, "Sum")
		copy(z, x)
		s.Larger(z, y)
		same(t, want(func(a, b float32) float32 {
			if b > a {
				return b
			}
			return a
		}), z, "Larger")
		for _, a := range extremes {
			s.Scale(z, y, a)
			same(t, want(func(_, b float32) float32 { return a * b }), z, "Scale")
		}
	})
}

// Sums in float64 have the same bits in every set, and include every element.
func TestSumsAreTheSameInEverySet(t *testing.T) {
	r := random(t)
	for n := range 200 {
		x, y := draws(r, n, 1e3), draws(r, n, 1)
		var total, squares, dot, size float64
		for i, v := range x {
			total += float64(v)
			squares += float64(v) * float64(v)
			dot += float64(v) * float64(y[i])
			size += math.Abs(float64(v)) * (1 + math.Abs(float64(y[i])))
		}
		for _, s := range sets() {
			require.InDelta(t, total, s.Total(x), 0x1p-40*size+0x1p-1000)
			require.InDelta(t, squares, s.Squares(x, 0), 0x1p-40*squares+0x1p-1000)
			require.InDelta(t, dot, s.Dot(x, y), 0x1p-40*size+0x1p-1000)
			require.Equal(t, vector.Portable.Total(x), s.Total(x))
			require.Equal(t, vector.Portable.Squares(x, 0.7), s.Squares(x, 0.7))
			require.Equal(t, vector.Portable.Dot(x, y), s.Dot(x, y))
		}
	}
	each(t, func(t *testing.T, s vector.Set) {
		require.Equal(t, 2*0x1p-298, s.Squares([]float32{math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32}, 0))
		require.Equal(t, 2*math.MaxFloat32*math.MaxFloat32, s.Squares([]float32{math.MaxFloat32, -math.MaxFloat32}, 0))
		require.True(t, math.IsNaN(s.Squares([]float32{1, nan}, 0)))
		require.True(t, math.IsInf(s.Squares([]float32{1, -inf}, 0), 1))
		require.True(t, math.IsNaN(s.Total([]float32{inf, -inf})))
	})
}

func TestNorm(t *testing.T) {
	r := random(t)
	const mean, rstd, meanG, meanGN = 0.25, 1.5, 0.5, -0.75
	for _, n := range []int{1, 7, 16, 100} {
		x, dy, gamma, beta, old := draws(r, n, 2), draws(r, n, 1), draws(r, n, 1), draws(r, n, 1), draws(r, n, 1)
		each(t, func(t *testing.T, s vector.Set) {
			y, dx, dgamma := make([]float32, n), make([]float32, n), append([]float32{}, old...)
			s.Normalise(y, x, gamma, beta, mean, rstd)
			s.NormGrad(dx, dy, x, gamma, mean, rstd, meanG, meanGN)
			s.NormGain(dgamma, dy, x, mean, rstd)
			g, gn := s.NormSums(dy, x, gamma, mean, rstd)
			var wantG, wantGN float64
			for i := range x {
				v, d, gain := (float64(x[i])-mean)*rstd, float64(dy[i]), float64(gamma[i])
				wantG += d * gain
				wantGN += d * gain * v
				requireNear(t, v*gain+float64(beta[i]), 0x1p-21*(math.Abs(v*gain)+math.Abs(float64(beta[i]))), y[i], "Normalise")
				requireNear(t, rstd*(d*gain-meanG-v*meanGN), 0x1p-20*(math.Abs(d*gain)+meanG+math.Abs(v)), dx[i], "NormGrad")
				requireNear(t, float64(old[i])+d*v, 0x1p-21*(math.Abs(d*v)+math.Abs(float64(old[i]))), dgamma[i], "NormGain")
			}
			require.InDelta(t, wantG, g, 1e-5*float64(n))
			require.InDelta(t, wantGN, gn, 1e-5*float64(n))
		})
	}
}

// TestUpdate compares an update with AdamW in float64, for gradients of many exponents. A
// gradient that is infinite or NaN makes its weight NaN.
func TestUpdate(t *testing.T) {
	r := random(t)
	const n = 300
	weight, grad, m := draws(r, n, 1), draws(r, n, 1), draws(r, n, 1)
	v := draws(r, n, 1)
	for i := range v {
		v[i] *= v[i]
		grad[i] *= float32(math.Exp2(float64(r.IntN(80) - 40)))
	}
	grad[0], grad[1], grad[2] = nan, inf, math.SmallestNonzeroFloat32
	each(t, func(t *testing.T, s vector.Set) {
		w, a, b := append([]float32{}, weight...), append([]float32{}, m...), append([]float32{}, v...)
		s.Update(w, grad, a, b, &update)
		for i := range w {
			if i < 2 {
				require.True(t, w[i] != w[i], "a weight whose gradient is %v", grad[i])
				continue
			}
			g := 0.5 * float64(grad[i])
			wantM := float64(update.Beta1)*float64(m[i]) + float64(update.Rest1)*g
			wantV := float64(update.Beta2)*float64(v[i]) + float64(update.Rest2)*g*g
			requireNear(t, wantM, 0x1p-22*(math.Abs(float64(m[i]))+math.Abs(g)), a[i], "m")
			requireNear(t, wantV, 0x1p-22*(float64(v[i])+g*g), b[i], "v")
			step := 2*wantM/(math.Sqrt(3*wantV)+1e-8) + float64(update.Decay)*float64(weight[i])
			size := 0x1p-18*(2*(math.Abs(float64(m[i]))+math.Abs(g))/math.Sqrt(3*wantV)+1)*0.01 + 0x1p-23*math.Abs(float64(weight[i]))
			requireNear(t, float64(weight[i])-float64(update.Rate)*step, size, w[i], "the weight of gradient %v", grad[i])
		}
	})
}

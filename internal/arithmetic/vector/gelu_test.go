package vector_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/vector"
)

// gelu returns GELU, which is x·σ(z) with σ(z) = 1/(1+e^-z), and its derivative in float64. If
// |x| is at least 16, σ is 0 or 1 to within the precision of float64. If |x| is below 2^-20, two
// terms of the series are enough.
func gelu(x float64) (y, slope float64) {
	c := 2 * math.Sqrt(2/math.Pi)
	switch {
	case x >= 16:
		return x, 1
	case x <= -16:
		return 0, 0
	case math.Abs(x) < 0x1p-20:
		return x/2 + c*x*x/4, 0.5 + c*x/2
	}
	z := c * (x + 0.044715*x*x*x)
	e := math.Exp(-math.Abs(z))
	sigma, away := 1/(1+e), e/(1+e) // σ(|z|) and σ(-|z|)
	slope = x * sigma * away * c * (1 + 3*0.044715*x*x)
	if z < 0 {
		sigma = away
	}
	return x * sigma, slope + sigma
}

// geluErrors are the largest errors found, of GELU relative to |x| and of its derivative
// relative to dy.
type geluErrors struct{ y, slope float64 }

// check checks the results for x and for dy = 3.
func (e *geluErrors) check(t *testing.T, x, y, dx []float32) {
	t.Helper()
	for i, v := range x {
		if v != v || v == inf || v == -inf {
			if y[i] == y[i] || v != v && dx[i] == dx[i] {
				require.Failf(t, "a number", "gelu(%v) is %v, its slope %v", v, y[i], dx[i])
			}
			continue
		}
		a := math.Abs(float64(v))
		want, slope := gelu(float64(v))
		off, offSlope := math.Abs(float64(y[i])-want), math.Abs(float64(dx[i])/3-slope)
		if !(off <= 0x1p-21*a+0x1p-149) || !(offSlope <= 0x1p-20) {
			require.Failf(t, "out of bounds", "gelu(%v) is %v, want %v; its slope %v, want %v", v, y[i], want, dx[i]/3, slope)
		}
		if a >= 0x1p-126 { // otherwise the result may be rounded to a denormal number
			e.y = max(e.y, off/a)
		}
		e.slope = max(e.slope, offSlope)
	}
}

// With -long the test covers all 2^32 numbers.
func TestGELUOverItsWholeRange(t *testing.T) {
	each(t, func(t *testing.T, s vector.Set) {
		var y, dx, dy []float32
		var worst geluErrors
		for x := range everywhere {
			for len(dy) < len(x) {
				y, dx, dy = append(y, 0), append(dx, 0), append(dy, 3)
			}
			s.GELU(y[:len(x)], x)
			s.GELUGrad(dx[:len(x)], dy, x)
			worst.check(t, x, y, dx)
		}
		t.Logf("largest errors: 2^%.2f·|x|, of the derivative 2^%.2f", math.Log2(worst.y), math.Log2(worst.slope))
		require.Greater(t, worst.y, 0x1p-26, "no float32 is better: the measurement is wrong")
	})
}

// Most floats are tiny or huge. This test covers the range in which the function bends, and the
// neighborhoods of the limits of its ranges: powers of two, and the points at which the
// exponential becomes 0 and at which x², x³ and the argument of the exponential overflow.
func TestGELUWhereItBends(t *testing.T) {
	r := random(t)
	x := draws(r, 1<<16, 3)
	borders := []float64{7.5, 9.5, 9.6, 9.7, 9.8, 9.9, 10, 16, math.Cbrt(math.MaxFloat32), math.Sqrt(math.MaxFloat32), math.Cbrt(math.MaxFloat32 / 0.0713)}
	for e := -149; e < 128; e++ {
		borders = append(borders, math.Ldexp(1, e))
	}
	for _, b := range borders {
		near := math.Float32bits(float32(b))
		for d := range uint32(33) {
			v := math.Float32frombits(near - min(near, 16) + d)
			x = append(x, v, -v)
		}
	}
	each(t, func(t *testing.T, s vector.Set) {
		y, dx, dy := make([]float32, len(x)), make([]float32, len(x)), make([]float32, len(x))
		for i := range dy {
			dy[i] = 3
		}
		s.GELU(y, x)
		s.GELUGrad(dx, dy, x)
		new(geluErrors).check(t, x, y, dx)

		dy = draws(r, len(x), 1)
		s.GELUGrad(dx, dy, x)
		for i, v := range x {
			_, slope := gelu(float64(v))
			requireNear(t, float64(dy[i])*slope, 0x1p-20*math.Abs(float64(dy[i])), dx[i], "%v·gelu'(%v)", dy[i], v)
		}
	})
}

package float8_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/float8"
)

// The tables of ONNX: operator Cast, version 24 (docs/Operators.md, technical/float8.md),
// and the numbers of its node tests (onnx/backend/test/case/node/cast.py).

// Cast with saturate = 1 and 0. The sign of NaN is kept in both.
func TestCastAsONNX(t *testing.T) {
	inf, nan, zero := float32(math.Inf(1)), float32(math.NaN()), math.Float32frombits(0)
	for _, c := range []struct {
		name                                 string
		x                                    float32
		e4m3, e5m2, e4m3Plainly, e5m2Plainly byte
	}{
		{"0", zero, 0, 0, 0, 0},
		{"NaN", nan, 0x7f, 0x7f, 0x7f, 0x7f},
		{"infinity", inf, 0x7e, 0x7b, 0x7f, 0x7c},
		{"[x] above the greatest", 1e6, 0x7e, 0x7b, 0x7f, 0x7c},
		{"half a step above that of e4m3, to even", 464, 0x7e, 0x5f, 0x7e, 0x5f},
		{"more than that", 464.1, 0x7e, 0x5f, 0x7f, 0x5f},
		{"half a step above that of e5m2, to even", 61440, 0x7e, 0x7b, 0x7f, 0x7c},
		{"less than that", 61439, 0x7e, 0x7b, 0x7f, 0x7b},
		{"else", 0.47892547, 0x2f, 0x38, 0x2f, 0x38},
	} {
		for sign, x := range map[byte]float32{0: c.x, 0x80: float32(math.Copysign(float64(c.x), -1))} {
			require.Equal(t, c.e4m3|sign, float8.E4M3.Encode(x, float8.Saturate), "%s, %#x", c.name, sign)
			require.Equal(t, c.e5m2|sign, float8.E5M2.Encode(x, float8.Saturate), "%s, %#x", c.name, sign)
			require.Equal(t, c.e4m3Plainly|sign, float8.E4M3.Encode(x, float8.Overflows), "%s, %#x", c.name, sign)
			require.Equal(t, c.e5m2Plainly|sign, float8.E5M2.Encode(x, float8.Overflows), "%s, %#x", c.name, sign)
		}
	}
}

// Cast to E8M0 up, down and to nearest, saturating: the special values, the numbers of
// the node test, and the middles. Where ONNX's table and its helper part (infinity), the
// table holds.
func TestScalesAsONNX(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		x                 float32
		up, down, nearest float8.E8M0
	}{
		{0, 0, 0, 0}, {nan, 255, 255, 255}, {inf, 254, 254, 254}, {math.MaxFloat32, 254, 254, 254}, {0x1p-149, 0, 0, 0},
		{0.124, 124, 123, 124}, {0.25, 125, 125, 125}, {0.5, 126, 126, 126}, {1.1, 128, 127, 127}, {2, 128, 128, 128}, {4, 129, 129, 129}, {8, 130, 130, 130},
		{1.25, 128, 127, 127}, {1.5, 128, 127, 128}, {1.75, 128, 127, 128}, {3, 129, 128, 129}, {0x1p-126, 1, 1, 1}, {0x1.8p-126, 2, 1, 2},
	} {
		require.Equal(t, c.up, float8.ScaleUp(c.x), "up %g", c.x)
		require.Equal(t, c.down, float8.ScaleDown(c.x), "down %g", c.x)
		require.Equal(t, c.nearest, scaleNearest(c.x), "nearest %g", c.x)
	}
}

package float8_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/arithmetic/float8"
)

// The tables of ONNX: operator Cast, version 24 (docs/Operators.md, technical/float8.md),
// and the numbers of its node tests (onnx/backend/test/case/node/cast.py).

// Cast with saturate = 1 and 0. Both keep the sign of NaN.
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
		{"half a step above the greatest of e4m3, to even", 464, 0x7e, 0x5f, 0x7e, 0x5f},
		{"more than that", 464.1, 0x7e, 0x5f, 0x7f, 0x5f},
		{"half a step above the greatest of e5m2, to even", 61440, 0x7e, 0x7b, 0x7f, 0x7c},
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

package stagetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages/stagetest"
)

// TestExact multiplies numbers that NVFP4 does not have, in a matrix with one more column of codes
// than was quantized.
func TestExact(t *testing.T) {
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	d := &stagetest.Exact{Host: host}
	put := func(x ...float32) kernels.Buffer {
		b, err := d.Floats(memory.Workspace, x...)
		require.NoError(t, err)
		return b
	}
	e := kernels.Encoding{Format: kernels.E2M1, Scaling: kernels.NV16}
	room := func(rows, cols int) kernels.Quantized {
		b, err := d.Alloc(memory.FP8, kernels.Uint8, e.Bytes(rows, cols))
		require.NoError(t, err)
		return kernels.Quantized{Data: b, Encoding: e, Rows: rows, Cols: cols}
	}
	op := kernels.Quantize{X: put(.1, .2, .3, .4, .5, .6), Rows: 3, Cols: 2, Rowwise: room(3, 2), Columnwise: room(2, 3)}
	require.NoError(t, d.Quantize(op))
	back := put(make([]float32, 6)...)
	require.NoError(t, d.Dequantize(back, op.Rowwise, false))
	require.Equal(t, []float32{.1, .2, .3, .4, .5, .6}, d.Float32s(back))
	require.NoError(t, d.Dequantize(back, op.Rowwise, true))
	require.Equal(t, []float32{.1, .3, .5, .2, .4, .6}, d.Float32s(back))

	wide := op.Columnwise
	wide.Cols = 4 // the same bytes
	c := put(1, 1, 1, 1)
	product := kernels.QuantizedMatMul{A: wide, B: wide, C: c, M: 2, N: 2, K: 4, Accumulate: true, Bias: put(0, 2), Workspace: put(make([]float32, d.QuantizedWorkspace(2, 2, 4))...)}
	require.NoError(t, d.QuantizedMatMul(product))
	require.Equal(t, []float32{1.35, 3.44, 1.44, 3.56}, d.Float32s(c))
	product.B = room(2, 4)
	require.ErrorContains(t, d.QuantizedMatMul(product), "Exact has not quantized the matrix of 2×4")
	product.K = -1
	require.ErrorIs(t, d.QuantizedMatMul(product), kernels.ErrShape)
	require.NoError(t, d.Close())
}

package cuda_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/kernels/cuda/internal/fakecuda"
	"github.com/weir-ml/weir/kernels/kerneltest"
)

// rounded returns a number rounded to bfloat16, computed independently: the nearest neighbor, or at
// the midpoint the one with an even significand.
func rounded(x float32) float64 {
	step := math.Ldexp(1, math.Ilogb(float64(x))-7)
	return math.RoundToEven(float64(x)/step) * step
}

// tensorProducts compares bfloat16 products with exact products of the rounded operands, within
// the bound of float32 sums, and with exact products of the original operands, within the bound
// of bfloat16.
func tensorProducts(t *testing.T, d *cuda.Device) {
	for i, s := range [][3]int{{1, 1, 1}, {17, 33, 9}, {70, 20, 35}, {40, 3, 130}, {65, 66, 64}} {
		for form := range 8 {
			op := kernels.MatMul{M: s[0], N: s[1], K: s[2], TransA: form&1 != 0, TransB: form&2 != 0, Accumulate: form&4 != 0}
			op.A, op.B, op.C = filled(t, d, op.M*op.K, 1), filled(t, d, op.K*op.N, 2), filled(t, d, op.M*op.N, 3)
			if i%2 > 0 {
				op.Bias = filled(t, d, op.N, 4)
			}
			a, b, c, bias := content(t, d, op.A), content(t, d, op.B), content(t, d, op.C), make([]float32, op.N)
			if i%2 > 0 {
				bias = content(t, d, op.Bias)
			}
			require.NoError(t, d.MatMul(op))
			for j, got := range content(t, d, op.C) {
				row, col := j/op.N, j%op.N
				near, exact, size := float64(bias[col]), float64(bias[col]), math.Abs(float64(bias[col]))
				if op.Accumulate {
					near, exact, size = near+float64(c[j]), exact+float64(c[j]), size+math.Abs(float64(c[j]))
				}
				for k := range op.K {
					x, y := row*op.K+k, k*op.N+col
					if op.TransA {
						x = k*op.M + row
					}
					if op.TransB {
						y = col*op.K + k
					}
					near += rounded(a[x]) * rounded(b[y])
					exact += float64(a[x]) * float64(b[y])
					size += math.Abs(float64(a[x]) * float64(b[y]))
				}
				what := fmt.Sprintf("%v, form %d, element %d", s, form, j)
				require.InDelta(t, near, float64(got), float64(op.K+3)*0x1p-24*size*1.01, what)
				require.InDelta(t, exact, float64(got), 0x1.02p-7*size, what)
			}
		}
	}
	for _, c := range kerneltest.Cases() {
		if c.Name == "head/weight 0" && *testkit.Long { // skips tokens, exactly
			d.Reclaim(0)
			require.NoError(t, c.Check(d))
		}
	}
	require.NoError(t, d.Close())
}

// library multiplies with the kernels of a device, and fails on request.
type library struct {
	device         *cuda.Device
	workspace      int64
	products, half int
	closed         int
	fail           error
}

func (l *library) Bind(_ driver.Stream, at driver.Addr, bytes int64) error {
	if at%256 != 0 {
		return driver.ErrInvalid
	}
	l.workspace = bytes
	return l.fail
}

func (l *library) Multiply(op driver.Multiply) error {
	l.products++
	if op.BFloat16 {
		l.half++
	}
	return errors.Join(l.fail, l.device.Kernel(op))
}

func (l *library) Close() error {
	l.closed++
	return nil
}

// If there is a library, it computes every product except those that skip tokens, with the same
// numbers; its memory is allocated before the first product, and released with the device.
func TestLibrary(t *testing.T) {
	open := func(products cuda.Products) (*cuda.Device, *library) {
		l := &library{}
		fake := fakecuda.New(1, 96<<20, page)
		d := opened(t, fake, cuda.Config{Capacity: 32 << 20, Library: l, Products: products})
		fake.Follow(d.All)
		l.device = d
		require.EqualValues(t, 32<<20, l.workspace)
		return d, l
	}
	for _, c := range kerneltest.Cases() {
		if c.Name == "matmul" || c.Name == "head/backward" && *testkit.Long {
			d, l := open(cuda.Float32)
			require.NoError(t, c.Check(d), c.Name)
			require.Positive(t, l.products)
			require.Zero(t, l.half)
			require.NoError(t, d.Close())
			require.Equal(t, 1, l.closed)
		}
	}
	d, l := open(cuda.BFloat16)
	op := kernels.MatMul{A: filled(t, d, 6, 1), B: filled(t, d, 6, 2), C: filled(t, d, 4, 3), Bias: filled(t, d, 2, 4), M: 2, N: 2, K: 3}
	require.NoError(t, d.MatMul(op))
	a, b, bias := content(t, d, op.A), content(t, d, op.B), content(t, d, op.Bias)
	require.InDelta(t, a[3]*b[1]+a[4]*b[3]+a[5]*b[5]+bias[1], content(t, d, op.C)[3], 0.05)
	require.Equal(t, 1, l.half)
	l.fail = driver.ErrLost
	require.ErrorIs(t, d.MatMul(op), driver.ErrLost)
	require.NoError(t, d.Close())

	l = &library{fail: driver.ErrOutOfMemory}
	_, err := cuda.Open(fakecuda.New(1, 96<<20, page), cuda.Config{Library: l})
	require.ErrorIs(t, err, driver.ErrOutOfMemory)
	require.Equal(t, 1, l.closed)
}

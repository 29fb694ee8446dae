//go:build linux

package cublas_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels/cuda/cublas"
	"github.com/weir-ml/weir/kernels/cuda/driver"
)

// context counts the calls that run in it, and fails on request.
type context struct {
	calls  int
	broken error
}

func (c *context) Current(call func() error) error {
	c.calls++
	return errors.Join(c.broken, call())
}

// standIn compiles testdata/cublas.c, and opens it for a context.
func standIn(t *testing.T, in cublas.Device) *cublas.Library {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	path := filepath.Join(t.TempDir(), "libcublas.so")
	out, err := exec.Command(cc, "-shared", "-fPIC", "-O1", "-ffp-contract=off", "-o", path, "testdata/cublas.c").CombinedOutput()
	require.NoError(t, err, string(out))
	l, err := cublas.Open(in, path)
	require.NoError(t, err)
	return l
}

func at(x []float32) driver.Addr { return driver.Addr(uintptr(unsafe.Pointer(&x[0]))) }

// Every form of a row-major product is passed to cuBLAS in its column-major form.
func TestMultiply(t *testing.T) {
	in := &context{}
	l := standIn(t, in)
	rng := rand.New(rand.NewPCG(1, 2))
	draws := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.IntN(1<<9)-1<<8) / 32 // products and sums are exact; rounding to bfloat16 changes some
		}
		return x
	}
	const m, n, k = 5, 3, 7
	a, b, c := draws(m*k), draws(k*n), draws(m*n)
	op := driver.Multiply{A: at(a), B: at(b), C: at(c), M: m, N: n, K: k}
	require.ErrorContains(t, l.Multiply(op), "cublasStatus_t 1", "no stream yet")
	room := draws(4096)
	skip := (256 - uintptr(unsafe.Pointer(&room[0]))%256) % 256 / 4
	require.ErrorIs(t, l.Bind(1, at(room[skip:]), 16), driver.ErrInvalid)
	require.NoError(t, l.Bind(1, at(room[skip:]), 8192))
	for form := range 16 {
		op.TransA, op.TransB, op.Accumulate, op.BFloat16 = form&1 != 0, form&2 != 0, form&4 != 0, form&8 != 0
		round := func(x float32) float32 {
			if !op.BFloat16 || x == 0 {
				return x
			}
			step := math.Ldexp(1, math.Ilogb(float64(x))-7)
			return float32(math.RoundToEven(float64(x)/step) * step)
		}
		want := make([]float32, m*n)
		for i := range m {
			for j := range n {
				var sum float32
				for l := range k {
					x, y := i*k+l, l*n+j
					if op.TransA {
						x = l*m + i
					}
					if op.TransB {
						y = j*k + l
					}
					sum += round(a[x]) * round(b[y])
				}
				if op.Accumulate {
					sum += c[i*n+j]
				}
				want[i*n+j] = sum
			}
		}
		calls := in.calls
		require.NoError(t, l.Multiply(op))
		require.Equal(t, want, c, fmt.Sprintf("%+v", op))
		require.Equal(t, calls+1, in.calls)
	}
	op.K = 0
	err := l.Multiply(op)
	require.ErrorIs(t, err, driver.ErrInvalid)
	require.ErrorContains(t, err, "cublasGemmEx: cublasStatus_t 7 (CUDA error 7)")
	in.broken = errors.New("no context")
	require.ErrorContains(t, l.Multiply(op), "no context")
	in.broken = nil
	require.NoError(t, errors.Join(l.Close(), l.Close()))
}

// Without cuBLAS, Open returns an error that wraps driver.ErrNoDevice.
func TestNone(t *testing.T) {
	_, err := cublas.Open(&context{}, filepath.Join(t.TempDir(), "none.so"))
	require.ErrorIs(t, err, driver.ErrNoDevice)
	require.ErrorContains(t, err, "none.so")
}

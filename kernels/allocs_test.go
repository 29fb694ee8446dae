package kernels_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
)

// No operation allocates on the Go heap, for any sizes (L11).
func TestOperationsAllocateNothing(t *testing.T) {
	for _, size := range [][2]int{{5, 6}, {140, 130}} {
		b := newBench(t)
		x, y, host := b.random(size[0]*size[1]), b.random(size[0]*size[1]), make([]float32, size[0]*size[1])
		square := b.random(size[1] * size[1])
		more := []operation{
			{name: "WriteFloat32", run: func() error { return b.WriteFloat32(x, host) }},
			{name: "ReadFloat32", run: func() error { return b.ReadFloat32(host, x) }},
		}
		for _, op := range []kernels.MatMul{
			{A: x, B: square, C: y, M: size[0], N: size[1], K: size[1]},
			{A: x, B: square, C: y, M: size[0], N: size[1], K: size[1], TransB: true},
			{A: x, B: y, C: square, M: size[1], N: size[1], K: size[0], TransA: true, Accumulate: true},
		} {
			more = append(more, operation{name: fmt.Sprintf("%+v", op), run: func() error { return b.MatMul(op) }})
		}
		for _, op := range slices.Concat(b.operations(size[0], size[1], 2, 50), more) {
			require.NoError(t, op.run(), op.name)
			require.Zero(t, testing.AllocsPerRun(3, func() { _ = op.run() }), "%s at %v", op.name, size)
		}
	}
}

// Operations of low precision allocate nothing either, with one thread and with two.
func TestLowPrecisionAllocatesNothing(t *testing.T) {
	for _, threads := range []int{1, 2} {
		b := newBenchWith(t, kernels.HostConfig{Threads: threads})
		for _, op := range b.lowPrecision(140, 130) {
			require.NoError(t, op.run())
			require.Zero(t, testkit.Allocations(func() { _ = op.run() }, 0), "%s, %d threads", op.name, threads)
		}
	}
}

// Allocating and releasing buffers does not allocate on the Go heap either.
func TestBuffersAllocateNothing(t *testing.T) {
	b := newBench(t)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		x, _ := b.Alloc(0, kernels.Float32, 1000)
		_, _ = b.Hold(x)
		_, _ = b.Unhold(x)
		_, _ = b.Release(x)
	}))
}

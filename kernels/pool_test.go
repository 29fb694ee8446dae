package kernels_test

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
)

func TestPoolRefuses(t *testing.T) {
	for _, threads := range []int{0, -1, 257} {
		_, err := kernels.NewPool(threads)
		require.ErrorIs(t, err, kernels.ErrValue, threads)
	}
	_, err := kernels.NewHost(kernels.HostConfig{Threads: -1})
	require.ErrorIs(t, err, kernels.ErrValue)
	pool, err := kernels.NewPool(1)
	require.NoError(t, err)
	require.Equal(t, 1, pool.Threads())
	_, err = kernels.NewHost(kernels.HostConfig{Threads: 2, Pool: pool})
	require.ErrorIs(t, err, kernels.ErrValue)
	pool.Close()
	pool.Close()
}

func TestInstructionsThatAreMissing(t *testing.T) {
	for _, i := range []kernels.Instructions{kernels.BestInstructions, kernels.Portable, kernels.AVX2, kernels.AVX512, kernels.NEON, 99} {
		h, err := kernels.NewHost(kernels.HostConfig{Capacity: 4096, Instructions: i})
		if !i.Available() {
			require.ErrorIs(t, err, kernels.ErrValue, i)
			continue
		}
		require.NoError(t, err, i)
		require.NotEqual(t, kernels.BestInstructions, h.Instructions())
		require.NoError(t, h.Close())
	}
}

// TestThreadsInABubble runs a device with threads in virtual time: its pool is created in the
// bubble, and no goroutine is left when it is closed. A pool of one thread starts none.
func TestThreadsInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, threads := range []int{0, 1, 4} {
			h, err := kernels.NewHost(kernels.HostConfig{Capacity: 64 << 20, Threads: threads})
			require.NoError(t, err)
			synctest.Wait()
			b := &bench{TB: t, Host: h, rng: newRand()}
			require.Equal(t, max(threads, 1)-1, helpers())
			op := b.largeProduct()
			for range 10 {
				require.NoError(t, b.MatMul(op))
			}
			require.Equal(t, max(threads, 1)-1, helpers())
			require.NoError(t, h.Close())
			require.Zero(t, helpers())
		}
	})
}

// helpers returns the number of pool goroutines.
func helpers() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("kernels.(*Pool).help("))
}

// largeProduct returns a product that is large enough for many threads.
func (b *bench) largeProduct() kernels.MatMul {
	const n = 200
	return kernels.MatMul{A: b.random(n * n), B: b.random(n * n), C: b.random(n * n), M: n, N: n, K: n}
}

// TestSharedPool lets several devices compute at a time with the threads of one pool, which may
// have fewer threads than there are devices. All give the bits of a device alone. The race
// detector can find races here.
func TestSharedPool(t *testing.T) {
	want := func() []float32 {
		b := newBench(t)
		op := b.largeProduct()
		require.NoError(t, b.MatMul(op))
		return b.read(op.C)
	}()
	for _, threads := range []int{1, 2, 4} {
		pool, err := kernels.NewPool(threads)
		require.NoError(t, err)
		var ranks sync.WaitGroup
		results := make([][]float32, 5)
		for rank := range results {
			b := newBenchWith(t, kernels.HostConfig{Pool: pool})
			op := b.largeProduct()
			ranks.Go(func() {
				for range 5 {
					if err := b.MatMul(op); err != nil {
						return
					}
				}
				results[rank] = make([]float32, op.C.N)
				_ = b.ReadFloat32(results[rank], op.C)
			})
		}
		ranks.Wait()
		for _, got := range results {
			sameBits(t, want, got, "a device of a shared pool", threads)
		}
		pool.Close()
	}
}

// TestPoolEndsFirst uses a device after its pool was closed: the device computes alone.
func TestPoolEndsFirst(t *testing.T) {
	pool, err := kernels.NewPool(3)
	require.NoError(t, err)
	b := newBenchWith(t, kernels.HostConfig{Pool: pool})
	op := b.largeProduct()
	require.NoError(t, b.MatMul(op))
	want := b.read(op.C)
	pool.Close()
	for range 5 {
		require.NoError(t, b.MatMul(op))
		sameBits(t, want, b.read(op.C), "after the pool has ended")
	}
}

// No operation with threads allocates on the Go heap (L11).
func TestThreadsAllocateNothing(t *testing.T) {
	b := newBenchWith(t, kernels.HostConfig{Threads: 3})
	op := b.largeProduct()
	require.Zero(t, testing.AllocsPerRun(20, func() { _ = b.MatMul(op) }))
}

package kernels_test

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// bench is a host device with a source of random numbers, for tests and benchmarks.
type bench struct {
	testing.TB
	*kernels.Host
	rng *rand.Rand
}

func newBench(t testing.TB) *bench { return newBenchWith(t, kernels.HostConfig{}) }

func newBenchWith(t testing.TB, cfg kernels.HostConfig) *bench {
	cfg.Capacity = max(cfg.Capacity, 4<<20*bits.UintSize) // 32 bits have no addresses for several of 256 MiB
	h, err := kernels.NewHost(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return &bench{TB: t, Host: h, rng: newRand()}
}

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// draw returns n numbers of mean 0 and standard deviation 1.
func (b *bench) draw(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(b.rng.NormFloat64())
	}
	return x
}

func (b *bench) put(x []float32) kernels.Buffer {
	buf, err := b.Alloc(memory.Saved, kernels.Float32, len(x))
	require.NoError(b, err)
	require.NoError(b, b.WriteFloat32(buf, x))
	return buf
}

func (b *bench) random(n int) kernels.Buffer { return b.put(b.draw(n)) }

func (b *bench) ids(n, vocabulary int) kernels.Buffer {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(b.rng.IntN(vocabulary))
	}
	return b.putInts(x)
}

func (b *bench) putInts(x []int32) kernels.Buffer {
	buf, err := b.Alloc(memory.Entry, kernels.Int32, len(x))
	require.NoError(b, err)
	require.NoError(b, b.WriteInt32(buf, x))
	return buf
}

func (b *bench) read(buf kernels.Buffer) []float32 {
	x := make([]float32, buf.N)
	require.NoError(b, b.ReadFloat32(x, buf))
	return x
}

// sameBits compares the bits of numbers: NaN equals itself, and -0 differs from 0.
func sameBits(t testing.TB, want, got []float32, title string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Failf(t, "bits differ", "%s: element %d is %v, want %v (%v)", title, i, got[i], want[i], args)
		}
	}
}

func TestHostConfigReportsFaults(t *testing.T) {
	_, err := kernels.NewHost(kernels.HostConfig{Capacity: -1})
	require.ErrorContains(t, err, "Capacity")
	h, err := kernels.NewHost(kernels.HostConfig{})
	require.NoError(t, err)
	require.Equal(t, map[bool]string{false: "host", true: "host in plain Go"}[h.Instructions() == kernels.Portable], h.Name())
	require.NoError(t, h.Close())
}

func TestHostOutOfMemory(t *testing.T) {
	h, err := kernels.NewHost(kernels.HostConfig{Capacity: 4096})
	require.NoError(t, err)
	_, err = h.Alloc(memory.Saved, kernels.Float32, 1025)
	require.ErrorIs(t, err, memory.ErrOutOfMemory)
	b, err := h.Alloc(memory.Saved, kernels.Float32, 1024)
	require.NoError(t, err)
	require.NoError(t, h.Close())
	require.ErrorIs(t, h.Zero(b), memory.ErrStale)
}

// An error about shapes names the operation, the buffer and both numbers, for all buffers at
// once.
func TestErrorsNameWhatDoesNotFit(t *testing.T) {
	b := newBench(t)
	err := b.MatMul(kernels.MatMul{A: b.random(6), B: b.ids(8, 3), C: b.random(12), M: 3, N: 4, K: 2})
	require.ErrorIs(t, err, kernels.ErrShape)
	require.EqualError(t, err, "kernels: buffers do not fit the operation: MatMul: B is int32, want float32")

	err = b.MatMul(kernels.MatMul{A: b.random(6), B: b.random(7), C: b.random(13), M: 3, N: 4, K: 2})
	require.EqualError(t, err, "kernels: buffers do not fit the operation: MatMul: B has 7 elements, the operation has 8\n"+
		"kernels: buffers do not fit the operation: MatMul: C has 13 elements, the operation has 12")

	gone := b.random(4)
	_, err = b.Release(gone)
	require.NoError(t, err)
	err = b.Copy(b.random(4), gone)
	require.ErrorIs(t, err, memory.ErrStale)
	require.ErrorContains(t, err, "kernels: Copy: src: ")

	err = b.Dropout(b.random(4), b.random(4), 1, kernels.Key{})
	require.ErrorIs(t, err, kernels.ErrValue)
	require.ErrorContains(t, err, "Dropout: p is 1")
}

// Operands may be the same buffer. Package kerneltest passes results that are operands, which every
// operation rejects.
func TestOperandsMayBeTheSame(t *testing.T) {
	b := newBench(t)
	x := b.random(16)
	require.NoError(t, b.MatMul(kernels.MatMul{A: x, B: x, C: b.random(16), M: 4, N: 4, K: 4}))
}

func TestOpKey(t *testing.T) {
	require.Equal(t, uint64(0xcbf29ce484222325), kernels.OpKey(""))
	require.Equal(t, uint64(0xaf63dc4c8601ec8c), kernels.OpKey("a"))
}

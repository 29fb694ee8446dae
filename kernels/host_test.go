package kernels_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
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

// Every operation gives the same bits for any number of threads, at sizes that are divided into
// many uneven parts and at sizes that are not divided.
func TestThreadsChangeNoBit(t *testing.T) {
	for _, s := range [][4]int{{301, 210, 5, 1500}, {7, 12, 3, 11}} {
		outcome := func(threads int) map[string][]uint32 {
			b := newBenchWith(t, kernels.HostConfig{Threads: threads})
			return b.outcome(slices.Concat(b.operations(s[0], s[1], s[2], s[3]), b.lowPrecision(s[0], s[1])))
		}
		want := outcome(1)
		for _, threads := range []int{2, 3, 5} {
			got := outcome(threads)
			require.Len(t, got, len(want))
			for name, bits := range want {
				require.True(t, slices.Equal(bits, got[name]), "%s differs with %d threads at %v", name, threads, s)
			}
		}
	}
}

// TestBitsOfEverySystem compares the results of all operations with the results on amd64, on
// every architecture: those of plain Go, and those of assembly with fused multiply-adds, which
// are the same for AVX2, AVX-512 and NEON. The log has the hash of each operation.
func TestBitsOfEverySystem(t *testing.T) {
	for _, set := range []kernels.Instructions{kernels.Portable, kernels.AVX2, kernels.AVX512, kernels.NEON} {
		if !set.Available() {
			continue
		}
		b := newBenchWith(t, kernels.HostConfig{Instructions: set})
		results := b.outcome(b.operations(101, 70, 5, 1100))
		sum := sha256.New()
		for _, name := range slices.Sorted(maps.Keys(results)) {
			of := sha256.New()
			require.NoError(t, binary.Write(of, binary.LittleEndian, results[name]))
			t.Logf("%s: %s has %x", set, name, of.Sum(nil)[:4])
			sum.Write(of.Sum(nil))
		}
		want := "377cd75cf107b0a0"
		if set == kernels.Portable {
			want = "058a18e661d49a2b"
		}
		require.Equal(t, want, hex.EncodeToString(sum.Sum(nil))[:16], set)
	}
}

package cuda_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/kernels/cuda"
	"github.com/weir-ml/weir/kernels/cuda/driver"
	"github.com/weir-ml/weir/kernels/cuda/internal/fakecuda"
	"github.com/weir-ml/weir/memory"
)

func ramp(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i + 1)
	}
	return x
}

// ReleasePages also writes copies that no kernel has waited for.
func TestReleaseAfterWrite(t *testing.T) {
	for seed := range uint64(20) {
		fake := fakecuda.New(seed, 24*page, page)
		dev := openFake(t, fake, fake)
		weight := put(t, dev, memory.Resident, ramp(n))
		var file bytes.Buffer
		require.NoError(t, dev.ReleasePages(&file, memory.Weights), "seed %d", seed)
		require.NoError(t, dev.RestorePages(&file))
		require.Equal(t, ramp(n), content(t, dev, weight))
		require.NoError(t, dev.Close())
	}
}

// meddling is a driver that calls encode during the first Sync, as another goroutine could.
type meddling struct {
	driver.Driver
	encode func()
}

func (m *meddling) Sync(s driver.Stream) error {
	if do := m.encode; do != nil {
		m.encode = nil
		do()
	}
	return m.Driver.Sync(s)
}

// Encode, which may be called from any goroutine, returns everything written before a
// concurrent Sync began.
func TestEncodeBesideSync(t *testing.T) {
	for seed := range uint64(20) {
		fake := fakecuda.New(seed, 24*page, page)
		as := &meddling{Driver: fake}
		dev := openFake(t, fake, as)
		b := put(t, dev, memory.Resident, ramp(n))
		var wire bytes.Buffer
		as.encode = func() { require.NoError(t, dev.Encode(&wire, b), "seed %d", seed) }
		require.NoError(t, dev.Sync(), "seed %d", seed)
		copied, err := dev.Decode(&wire, dev.Size(b))
		require.NoError(t, err)
		require.Equal(t, ramp(n), content(t, dev, copied))
		require.NoError(t, dev.Close())
	}
}

// While one goroutine waits for a read, others can use the device with other buffers.
func TestReadLetsTheDeviceGoOn(t *testing.T) {
	fake := fakecuda.New(1, 24*page, page)
	as := &meddling{Driver: fake}
	dev := openFake(t, fake, as)
	one := allocated(t, dev, memory.Resident, kernels.Float32, n)
	two := allocated(t, dev, memory.Resident, kernels.Float32, n)
	require.NoError(t, dev.WriteFloat32(one, ramp(n)))
	as.encode = func() { require.NoError(t, dev.WriteFloat32(two, ramp(n))) } // blocks if the reader holds the lock
	var wire bytes.Buffer
	require.NoError(t, dev.Encode(&wire, one))
	require.Nil(t, as.encode)
	require.NoError(t, dev.Close())
}

// If a buffer is released while a copy to it is in flight, in any way, the copy finishes before a
// kernel uses the buffer's address and before its pages are returned.
func TestEndsBehindACopy(t *testing.T) {
	const many = 300_000 // more than one slot
	x := ramp(many)
	written := func(t *testing.T, dev *cuda.Device) kernels.Buffer {
		return put(t, dev, memory.Transfer, x)
	}
	ends := map[string]func(*testing.T, *cuda.Device){
		"release": func(t *testing.T, dev *cuda.Device) {
			_, err := dev.Release(written(t, dev))
			require.NoError(t, err)
		},
		"leave": func(t *testing.T, dev *cuda.Device) {
			b := written(t, dev)
			_, _, err := dev.HoldWithClass(b)
			require.NoError(t, err)
			_, freed, _, err := dev.UnholdAndRelease(b)
			require.NoError(t, err)
			require.Positive(t, freed)
		},
		"reclaim": func(t *testing.T, dev *cuda.Device) {
			mark := dev.Mark()
			written(t, dev)
			require.Positive(t, dev.Reclaim(mark))
		},
		"failed decode": func(t *testing.T, dev *cuda.Device) {
			header := []byte{0xe0, 0x93, 4, 0, 0, 0, 0, byte(kernels.Float32)}
			_, err := dev.Decode(io.MultiReader(bytes.NewReader(header), bytes.NewReader(bytes.Repeat([]byte{1}, 1<<20))), 8+4*many)
			require.ErrorIs(t, err, io.EOF)
		},
	}
	place := &memory.Layout{Height: 2 << 20, Places: []int32{0, 1, 2}, Levels: make([]memory.Level, 2), Allocations: []memory.Allocation{
		{Offset: 256, Bytes: 4 * many, Class: memory.Transfer}, {Offset: 256, Bytes: 4 * many, Class: memory.Saved},
	}}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				fake := fakecuda.New(seed, 4<<20, page)
				dev := opened(t, fake, cuda.Config{})
				fake.Follow(dev.All)
				require.NoError(t, dev.SetLayout(place))
				dev.SetPlace(0)
				end(t, dev)
				dev.SetPlace(1)
				b := allocated(t, dev, memory.Saved, kernels.Float32, many)
				require.NoError(t, dev.Zero(b))
				require.NoError(t, dev.Sync())
				require.Equal(t, make([]float32, many), content(t, dev, b), "seed %d", seed)
				_, err := dev.Release(b)
				require.NoError(t, err)
				dev.SetPlace(0)
				end(t, dev)
				require.NoError(t, dev.SetLayout(nil))
				require.NoError(t, dev.ReleasePages(nil, memory.StepScope), "seed %d", seed)
				require.NoError(t, dev.Close())
			}
		})
	}
}

// If the device has no memory for its own needs, the error says only that; a lost device is
// reported once; and after Close no call reaches the driver.
func TestErrorsAreSaidOnce(t *testing.T) {
	fake := fakecuda.New(1, 8*page, page)
	fake.Plant("Map", 1, driver.ErrOutOfMemory)
	_, err := cuda.Open(fake, cuda.Config{})
	require.ErrorIs(t, err, driver.ErrOutOfMemory)
	require.NotErrorIs(t, err, driver.ErrInvalid)

	fake = fakecuda.New(1, 24*page, page)
	dev := openFake(t, fake, fake)
	fake.Plant("Sync", 1, driver.ErrLost)
	err = dev.Close()
	require.ErrorIs(t, err, driver.ErrLost)
	require.Equal(t, 1, strings.Count(err.Error(), driver.ErrLost.Error()), err)

	dev = openFake(t, fakecuda.New(1, 24*page, page), fakecuda.New(1, 24*page, page))
	require.NoError(t, errors.Join(dev.Close(), dev.Close()))
	require.ErrorIs(t, dev.Sync(), memory.ErrClosed)
	require.Zero(t, dev.Reclaim(0))
}

// A grid larger than any GPU supports is rejected, with its size.
func TestGrids(t *testing.T) {
	const rows = 64*65535 + 1
	fake := fakecuda.New(1, 48<<20, page)
	dev := opened(t, fake, cuda.Config{})
	alloc := func(n int) kernels.Buffer {
		return allocated(t, dev, memory.Saved, kernels.Float32, n)
	}
	err := dev.MatMul(kernels.MatMul{A: alloc(rows), B: alloc(1), C: alloc(rows), M: rows, N: 1, K: 1})
	require.ErrorIs(t, err, kernels.ErrShape)
	require.ErrorContains(t, err, "1 by 65536 blocks of matmul, want at most 2147483647 by 65535")
	require.NoError(t, dev.Close())
}

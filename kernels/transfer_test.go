package kernels_test

import (
	"bytes"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// ofEveryType returns a buffer of each type.
func (b *bench) ofEveryType() []kernels.Buffer {
	x := []float32{1, float32(math.Copysign(0, -1)), float32(math.Inf(1)), math.Float32frombits(0x7fc0dead), 5e-45}
	return []kernels.Buffer{b.put(x), b.ids(7, 100), b.room(kernels.Encoding{}, 3, 1).Data}
}

// requireCopy requires a buffer of class Transfer with the type and the bytes of another one.
func (b *bench) requireCopy(data []byte, src, copied kernels.Buffer) {
	got, err := b.Lend(copied)
	require.NoError(b, err)
	require.Equal(b, data, got)
	require.Equal(b, [2]any{src.N, src.Type}, [2]any{copied.N, copied.Type})
	require.Equal(b, memory.Transfer, b.Class(copied))
}

// TestTransfer copies between two hosts: the receiver gets the same bits in a new buffer, and the
// sender's book does not change.
func TestTransfer(t *testing.T) {
	from, to := newBench(t), newBench(t)
	to.random(3) // makes the handles of the two devices differ
	sources := from.ofEveryType()
	var before, after memory.Stats
	from.Stats(&before)
	mark := from.Mark()
	for _, b := range sources {
		view, err := from.Lend(b)
		require.NoError(t, err)
		data := bytes.Clone(view)
		copied, err := kernels.Transfer(to.Host, from.Host, b)
		require.NoError(t, err)
		clear(view) // the copy shares no memory with it
		to.requireCopy(data, b, copied)
	}
	from.Stats(&after)
	require.Equal(t, before, after)
	require.Equal(t, mark, from.Mark())
}

func TestTransferRefuses(t *testing.T) {
	from := newBench(t)
	small, err := kernels.NewHost(kernels.HostConfig{Capacity: 64})
	require.NoError(t, err)
	defer func() { require.NoError(t, small.Close()) }()
	b, gone := from.random(17), from.random(2)
	_, err = from.Release(gone)
	require.NoError(t, err)
	longer := b
	longer.N++
	other := b
	other.Type = 99
	for name, test := range map[string]struct {
		src  kernels.Device
		b    kernels.Buffer
		want error
	}{
		"no room":                 {from.Host, b, memory.ErrOutOfMemory},
		"a buffer that ended":     {from.Host, gone, memory.ErrStale},
		"no buffer":               {from.Host, kernels.Buffer{}, memory.ErrNone},
		"another size":            {from.Host, longer, kernels.ErrShape},
		"another type":            {from.Host, other, kernels.ErrShape},
		"no lender":               {plain{from.Host}, b, kernels.ErrNoLender},
		"no device":               {nil, b, kernels.ErrNoLender},
		"another device's handle": {small, b, memory.ErrOtherArena},
	} {
		_, err := kernels.Transfer(small, test.src, test.b)
		require.ErrorIs(t, err, test.want, name)
		require.Zero(t, small.Live(), name)
	}
}

// TestTransferOnNull allocates as the target would.
func TestTransferOnNull(t *testing.T) {
	host := newBench(t)
	from, to := kernels.NewNull(host.Host), kernels.NewNull(host.Host)
	b, err := from.Alloc(memory.Activation, kernels.Float32, 100)
	require.NoError(t, err)
	_, err = kernels.Transfer(to, from, b)
	require.NoError(t, err)
	require.Equal(t, []kernels.AllocEvent{{Class: memory.Transfer, Bytes: 400, Alloc: true}}, to.Record())
	require.Len(t, from.Record(), 1)
	require.NoError(t, from.Close())
	require.NoError(t, to.Close())
}

// TestTransferBesideWork copies on the receiver's goroutine while the sender's own goroutine
// allocates, computes and releases. If the sender releases a buffer meanwhile, the result is an
// error or a view that is not read. The race detector reports any failure here.
func TestTransferBesideWork(t *testing.T) {
	const rounds = 300
	from, to := newBench(t), newBench(t)
	type offer struct{ sent, ending kernels.Buffer }
	offered, taken := make(chan offer), make(chan error)
	var receiver sync.WaitGroup
	receiver.Go(func() {
		for o := range offered {
			_, _ = from.Lend(o.ending)
			copied, err := kernels.Transfer(to.Host, from.Host, o.sent)
			if err == nil {
				_, err = to.Release(copied)
			}
			taken <- err
		}
	})
	for round := range rounds {
		b, ending := from.random(64), from.random(64)
		offered <- offer{b, ending}
		_, err := from.Release(ending)
		require.NoError(t, err)
		var held []kernels.Buffer
		for i := range 1 + round%100 { // a growing number of buffers at once, so that the table grows
			x, err := from.Alloc(memory.Workspace, kernels.Float32, 64)
			require.NoError(t, err)
			require.NoError(t, from.GELU(x, x))
			require.NoError(t, from.Retain(b), "a sender that also saves the buffer")
			held = append(held, x, b)
			if i%2 == 1 {
				_, err = from.Hold(b)
				require.NoError(t, err)
				_, err = from.Unhold(b)
				require.NoError(t, err)
			}
		}
		mark := from.Mark()
		_, err = from.Alloc(memory.Workspace, kernels.Float32, 64)
		require.NoError(t, err)
		require.EqualValues(t, 256, from.Reclaim(mark))
		for _, x := range held {
			_, err := from.Release(x)
			require.NoError(t, err)
		}
		require.NoError(t, <-taken)
		_, err = from.Release(b)
		require.NoError(t, err)
	}
	close(offered)
	receiver.Wait()
	require.Zero(t, from.Live())
	require.Zero(t, to.Live())
}

// TestCodec sends buffers as bytes: the receiver has the bits in a buffer of class Transfer,
// and invalid bytes leave no buffer behind.
func TestCodec(t *testing.T) {
	from, to := newBench(t), newBench(t)
	sources := from.ofEveryType()
	var stream bytes.Buffer
	for _, b := range sources {
		begin := stream.Len()
		require.NoError(t, from.Encode(&stream, b))
		require.EqualValues(t, from.Size(b), stream.Len()-begin)
	}
	whole := bytes.Clone(stream.Bytes())
	for _, b := range sources {
		copied, err := to.Decode(&stream, from.Size(b))
		require.NoError(t, err)
		data, err := from.Lend(b)
		require.NoError(t, err)
		to.requireCopy(data, b, copied)
	}

	b := sources[0]
	live := to.Live()
	for name, bad := range map[string]struct {
		data []byte
		size int64
	}{
		"it ends in the header":   {whole[:5], from.Size(b)},
		"it ends in the elements": {whole[:12], from.Size(b)},
		"another size":            {whole, from.Size(b) + 4},
		"no type":                 {append([]byte{4, 0, 0, 0, 0, 0, 0, 99}, whole[8:]...), from.Size(b)},
		"too many elements":       {append([]byte{255, 255, 255, 255, 255, 255, 255, 0}, whole[8:]...), from.Size(b)},
	} {
		_, err := to.Decode(bytes.NewReader(bad.data), bad.size)
		require.Error(t, err, name)
		require.Equal(t, live, to.Live(), name)
	}
}

package kernels_test

import (
	"bytes"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/engine/invariants"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/memory/memorytest"
)

// layout returns a layout with one buffer of 100 elements at the only place.
func layout() *memory.Layout {
	return &memory.Layout{
		Height: 400, Places: []int32{0, 1}, Levels: []memory.Level{{Peak: 400}},
		Allocations: []memory.Allocation{{Bytes: 400, Class: memory.Saved}},
	}
}

// TestPlannedDevices places buffers of a host and of its Null according to a layout.
func TestPlannedDevices(t *testing.T) {
	host := newBench(t)
	null := kernels.NewNull(host.Host)
	defer null.Close()
	for _, d := range []kernels.Device{host.Host, null} {
		planned := d.(memory.Planned)
		require.NoError(t, planned.SetLayout(layout()))
		planned.SetPlace(0)
		_, err := d.Alloc(memory.Saved, kernels.Float32, 99)
		require.ErrorIs(t, err, memory.ErrUnplanned)
		b, err := d.Alloc(memory.Saved, kernels.Float32, 100)
		require.NoError(t, err)
		require.ErrorIs(t, planned.SetLayout(layout()), memory.ErrLive)
		_, err = d.Release(b)
		require.NoError(t, err)
		require.NoError(t, planned.SetLayout(nil))
	}
	require.Len(t, null.Record(), 2)
}

// TestNullHasNoPages lays out a step that no machine has the memory for.
func TestNullHasNoPages(t *testing.T) {
	if invariants.Enabled {
		t.Skip("poison touches every byte")
	}
	if bits.UintSize == 32 {
		t.Skip("a process with 32 bits reserves less than any machine has")
	}
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 40, Pages: &memorytest.Pages{Bytes: 4096}})
	require.NoError(t, err)
	defer host.Close()
	null := kernels.NewNull(host)
	defer null.Close()
	l := layout()
	l.Height = 1 << 39
	require.ErrorIs(t, host.SetLayout(l), memory.ErrOutOfMemory)
	require.NoError(t, null.SetLayout(l))
	require.LessOrEqual(t, null.Scope(memory.StepScope).Pages, int64(0))
}

// during is a device that calls a function while a transfer writes to it.
type during struct {
	*kernels.Host
	do func()
}

func (d during) WriteFloat32(dst kernels.Buffer, src []float32) error {
	d.do()
	return d.Host.WriteFloat32(dst, src)
}

// The sender rejects ReleasePages while a transfer reads one of its buffers.
func TestReleasePagesDuringTransfer(t *testing.T) {
	from, to := newBench(t), newBench(t)
	b, err := from.AllocIn(memory.Gradients, kernels.Float32, 100)
	require.NoError(t, err)
	calls := 0
	copied, err := kernels.Transfer(during{to.Host, func() {
		calls++
		err := from.ReleasePages(nil, memory.Gradients)
		require.ErrorIs(t, err, memory.ErrLive)
		require.ErrorContains(t, err, "while 1 transfers read buffers of this device")
	}}, from.Host, b)
	require.NoError(t, err)
	require.Equal(t, 1, calls)
	require.ErrorIs(t, to.ReleasePages(nil, memory.StepScope), memory.ErrLive)
	_, err = to.Release(copied)
	require.NoError(t, err)

	require.NoError(t, from.ReleasePages(nil, memory.Gradients))
	_, err = kernels.Transfer(to.Host, from.Host, b)
	require.ErrorIs(t, err, memory.ErrReleased)
	require.ErrorIs(t, from.Zero(b), memory.ErrReleased)
	require.NoError(t, from.RestorePages(nil))
	require.NoError(t, from.Zero(b))
}

// TestReleasePagesOfWeights writes weights out, and restores them bit for bit.
func TestReleasePagesOfWeights(t *testing.T) {
	d := newBench(t)
	x := d.draw(1000)
	b, err := d.AllocIn(memory.Weights, kernels.Float32, len(x))
	require.NoError(t, err)
	require.NoError(t, d.WriteFloat32(b, x))
	var saved bytes.Buffer
	require.NoError(t, d.ReleasePages(&saved, memory.Weights))
	require.Zero(t, d.Scope(memory.Weights).Live)
	require.NoError(t, d.RestorePages(&saved))
	require.Equal(t, x, d.read(b))
}

// TestAloneLendsNothing rejects every read by another goroutine.
func TestAloneLendsNothing(t *testing.T) {
	alone, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20, Alone: true})
	require.NoError(t, err)
	defer alone.Close()
	b, err := alone.Alloc(memory.Saved, kernels.Float32, 100)
	require.NoError(t, err)
	_, err = alone.Lend(b)
	require.ErrorIs(t, err, kernels.ErrNoLender)
	_, err = kernels.Transfer(newBench(t).Host, alone, b)
	require.ErrorIs(t, err, kernels.ErrNoLender)
	freed, err := alone.Release(b)
	require.NoError(t, err)
	require.EqualValues(t, 400, freed)
}

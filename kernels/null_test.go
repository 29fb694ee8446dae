package kernels_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
)

// layer behaves as a stage does: it allocates results, scratch, and saved buffers.
func layer(t testing.TB, d kernels.Compute) kernels.Buffer {
	const tokens, heads, dim = 70, 2, 8
	alloc := func(class memory.Class, n int) kernels.Buffer {
		b, err := d.Alloc(class, kernels.Float32, n)
		require.NoError(t, err)
		return b
	}
	forward, _ := d.AttentionWorkspace(tokens, heads, dim)
	op := kernels.CausalAttention{
		QKV: alloc(memory.Saved, tokens*3*heads*dim), Out: alloc(memory.Activation, tokens*heads*dim),
		LSE: alloc(memory.Saved, heads*tokens), Workspace: alloc(memory.Workspace, forward),
		Tokens: tokens, Heads: heads, HeadDim: dim,
	}
	require.NoError(t, d.WriteFloat32(op.QKV, make([]float32, op.QKV.N)))
	require.NoError(t, d.CausalAttention(op))
	for _, b := range []kernels.Buffer{op.Workspace, op.LSE, op.QKV} {
		_, err := d.Release(b)
		require.NoError(t, err)
	}
	return op.Out
}

// The record of a Null is the memory behavior of its target.
func TestNullIsTheTargetsMemory(t *testing.T) {
	host := newBench(t).Host
	null := kernels.NewNull(host)
	require.Equal(t, "null of host", null.Name())
	kept := layer(t, null)
	var fresh memory.Stats
	host.Stats(&fresh)
	require.Equal(t, memory.Stats{}, fresh, "the target was touched")

	var dry, real memory.Stats
	null.Stats(&dry)
	layer(t, host)
	host.Stats(&real)
	require.Equal(t, real, dry)

	const qkv, out, lse, workspace = 70 * 48 * 4, 70 * 16 * 4, 140 * 4, (2*64*8 + 64*64 + 128) * 4
	require.Equal(t, []kernels.AllocEvent{
		{Serial: 0, Class: memory.Saved, Bytes: qkv, Alloc: true},
		{Serial: 1, Class: memory.Activation, Bytes: out, Alloc: true},
		{Serial: 2, Class: memory.Saved, Bytes: lse, Alloc: true},
		{Serial: 3, Class: memory.Workspace, Bytes: workspace, Alloc: true},
		{Serial: 3, Class: memory.Workspace, Bytes: workspace},
		{Serial: 2, Class: memory.Saved, Bytes: lse},
		{Serial: 0, Class: memory.Saved, Bytes: qkv},
	}, null.Record())

	null.Forget()
	require.Empty(t, null.Record())
	require.NoError(t, null.Retain(kept))
	_, err := null.Release(kept)
	require.NoError(t, err)
	require.Empty(t, null.Record(), "another reference remains")
	mark := null.Mark()
	layer(t, null)
	null.Forget()
	require.Equal(t, int64(out), null.Reclaim(mark))
	require.Equal(t, []kernels.AllocEvent{{Serial: 4 + 1, Class: memory.Activation, Bytes: out}}, null.Record())
	require.NoError(t, null.Close())
	require.NoError(t, null.Close())
}

func TestNullComputesNothing(t *testing.T) {
	b := newBench(t)
	null := kernels.NewNull(b.Host)
	defer null.Close()
	x, err := null.Alloc(memory.Saved, kernels.Float32, 4)
	require.NoError(t, err)
	require.NoError(t, null.WriteFloat32(x, []float32{1, 2, 3, 4}))
	got := []float32{9, 9, 9}
	require.NoError(t, null.ReadFloat32(got, x))
	require.Equal(t, []float32{0, 0, 0}, got)
	s, err := null.SumSquares(x)
	require.NoError(t, err)
	require.Zero(t, s)
	require.ErrorIs(t, null.ReadFloat32(make([]float32, 5), x), kernels.ErrShape)
}

// plain hides that the host is Shadowed.
type plain struct{ kernels.Compute }

// tiny claims a capacity that no system can provide.
type tiny struct {
	kernels.Compute
	config memory.ArenaConfig
}

func (d tiny) ShadowConfig() memory.ArenaConfig { return d.config }

func TestNullOfOtherTargets(t *testing.T) {
	b := newBench(t)
	b.random(1000)
	var stats memory.Stats
	b.Stats(&stats)
	require.NotZero(t, stats.Reserved)
	null := kernels.NewNull(plain{b.Host})
	require.Equal(t, memory.ArenaConfig{Capacity: stats.Reserved}, null.ShadowConfig(), "the capacity that the target has reserved")
	require.NoError(t, null.Close())

	null = kernels.NewNull(tiny{b.Host, memory.ArenaConfig{Capacity: 128, Align: 128}})
	x, err := null.Alloc(memory.Saved, kernels.Float32, 1)
	require.NoError(t, err)
	_, err = null.Alloc(memory.Saved, kernels.Float32, 1)
	require.ErrorIs(t, err, memory.ErrOutOfMemory, "the alignment is the target's")
	_, err = null.Release(x)
	require.NoError(t, err)
	again := kernels.NewNull(null)
	require.Equal(t, null.ShadowConfig(), again.ShadowConfig(), "a Null is a target too")
	require.NoError(t, again.Close())
	require.NoError(t, null.Close())

	null = kernels.NewNull(tiny{b.Host, memory.ArenaConfig{Capacity: -1}})
	_, err = null.Alloc(memory.Saved, kernels.Float32, 1)
	require.ErrorContains(t, err, "Capacity")
	require.ErrorIs(t, null.Zero(x), memory.ErrOtherArena)
	require.Zero(t, null.Live())
	require.NoError(t, null.Close())
}

func TestNullRecordIsBounded(t *testing.T) {
	null := kernels.NewNull(newBench(t).Host)
	defer null.Close()
	for range kernels.NullEvents/2 + 3 {
		x, err := null.Alloc(memory.Saved, kernels.Float32, 1)
		require.NoError(t, err)
		_, err = null.Release(x)
		require.NoError(t, err)
	}
	require.Len(t, null.Record(), kernels.NullEvents)
	require.Equal(t, int64(6), null.Dropped())
	null.Forget()
	require.Zero(t, null.Dropped())
}

// Allocating and releasing buffers does not make the record grow (L7).
func TestNullDoesNotGrow(t *testing.T) {
	null := kernels.NewNull(newBench(t).Host)
	defer null.Close()
	require.Zero(t, testing.AllocsPerRun(1, func() {
		for range 1000 {
			x, _ := null.Alloc(memory.Saved, kernels.Float32, 1)
			_, _ = null.Release(x)
			null.Forget()
		}
	}))
}

// A stage that accepts an Addressable device is recorded as it runs. Float32s rejects a stale
// handle as every other call does.
func TestNullFloats(t *testing.T) {
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	defer host.Close()
	null := kernels.NewNull(host)
	defer null.Close()
	for _, dev := range []kernels.Addressable{host, null} {
		b, err := dev.Floats(memory.Saved, 1, 2)
		require.NoError(t, err)
		if dev == host {
			require.Equal(t, []float32{1, 2}, dev.Float32s(b))
		}
		dev.Float32s(b)[0] = 5
		want := []float32{5, 2}
		if dev == null {
			want = []float32{0, 0}
		}
		require.Equal(t, want, dev.Float32s(b))
		require.Nil(t, dev.Float32s(kernels.Buffer{}))
		_, err = dev.Release(b)
		require.NoError(t, err)
		func() {
			defer func() {
				err, _ := recover().(error)
				require.ErrorIs(t, err, memory.ErrStale, "a computation on no numbers would go unnoticed")
				require.ErrorContains(t, err, "kernels: Float32s: b: ")
			}()
			dev.Float32s(b)
		}()
	}
	require.Equal(t, []kernels.AllocEvent{{Bytes: 8, Class: memory.Saved, Alloc: true}, {Bytes: 8, Class: memory.Saved}}, null.Record())
}

package frames_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/internal/engine/offload"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// movable is an arena whose buffers all have 100 bytes.
type movable struct{ *memory.Arena }

func (m movable) View(h memory.Handle) ([]byte, error) { return m.Data(h) }

func (m movable) Like(class memory.Class, _ memory.Handle) (memory.Handle, error) {
	return m.Alloc(class, 100)
}

// offloading holds frames of one stage with two slots, of which the second is offloaded.
type offloading struct {
	*frames.Frames[memory.Handle]
	t    *testing.T
	near movable
	far  *offload.Memory[memory.Handle]
}

func newOffloading(t *testing.T) *offloading {
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	o := &offloading{t: t, near: movable{arena}}
	o.far, err = offload.New(o.near, offload.Heap(), 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, o.far.Close()) })
	o.Frames = frames.New(frames.Config[memory.Handle]{
		Space:  o.near,
		Stages: []*frames.Declaration[memory.Handle]{{Name: "block", Slots: []string{"kept", "moved"}}},
	})
	require.NoError(t, o.far.Start(2))
	o.Far = o.far
	o.Begin(1, frames.Train, frames.Extent{Plan: &schedule.Plan{StageWindows: []int{2}, OffloadSlots: []uint64{0b10}}, EntryWindow: 1, Wanted: []uint64{0}})
	return o
}

func (o *offloading) call(kind frames.Call) view[memory.Handle] { return viewOf(o.Frames, 0, 0, kind) }

// forward saves tensors in both slots.
func (o *offloading) forward() {
	require.NoError(o.t, o.Open(0, 0, nil))
	mb := o.call(frames.InForward)
	for slot := range 2 {
		h, err := o.near.Alloc(memory.Saved, 100)
		require.NoError(o.t, err)
		data, err := o.near.Data(h)
		require.NoError(o.t, err)
		data[99] = byte(slot + 1)
		require.NoError(o.t, mb.Save(slot, frames.ByBackward, h))
	}
	require.NoError(o.t, o.End(nil))
}

// owners returns the names of the held buffers.
func (o *offloading) owners() (names []string) {
	for info := range o.Owners() {
		require.EqualValues(o.t, 100, info.Bytes)
		names = append(names, info.Name)
	}
	return names
}

const (
	kept     = `microbatch 0: stage 0 (block): slot "kept"`
	moved    = `microbatch 0: stage 0 (block): slot "moved"`
	movedFar = moved + " in far memory"
)

// TestOffload moves a slot to far memory and back. The books of both memories are exact after every
// action, the slot cannot be taken meanwhile, and the bytes do not change.
func TestOffload(t *testing.T) {
	o := newOffloading(t)
	check := func(near, far int64, away int, owners ...string) {
		t.Helper()
		o.UpdateExcess()
		require.Zero(t, o.Excess())
		require.Equal(t, near, o.near.Live())
		require.Equal(t, far, o.far.Live())
		require.Equal(t, away, o.Counts()[effects.Far])
		require.Equal(t, owners, o.owners())
	}
	o.forward()
	check(200, 0, 0, kept, moved)
	require.NoError(t, o.Offload(0, 0))
	check(200, 100, 1, kept, moved, movedFar)
	require.NoError(t, o.WaitOffload(t.Context(), 0, 0))
	require.NoError(t, o.DropSaved(0, 0, schedule.WaitOffload, false))
	check(100, 100, 1, kept, movedFar)
	require.NoError(t, o.Reload(0, 0))
	check(200, 100, 1, kept, moved, movedFar)
	require.NoError(t, o.WaitReload(t.Context(), 0, 0))
	mb := o.call(frames.InBackward)
	_, err := mb.Take(0)
	require.NoError(t, err)
	h, err := mb.Take(1)
	require.NoError(t, err)
	data, err := o.near.Data(h)
	require.NoError(t, err)
	require.EqualValues(t, 2, data[99])
	require.NoError(t, o.End(nil))
	require.NoError(t, o.DropSaved(0, 0, frames.InBackward, true))
	require.NoError(t, o.DropFar(0, 0))
	check(0, 0, 0)
	require.NoError(t, o.Audit(frames.Counts{}))
	far := o.EndInterval().Far
	require.Zero(t, far.Live)
	require.EqualValues(t, 100, far.Peak)
	require.Zero(t, o.EndInterval().Far.Peak, "since the previous record")
}

// TestTakeAway checks each state of an offloaded slot: a take, the end of the frame, and actions
// out of order are errors, and an abort releases both memories.
func TestTakeAway(t *testing.T) {
	for actions := 1; actions <= 3; actions++ {
		o := newOffloading(t)
		o.forward()
		require.NoError(t, o.Offload(0, 0))
		if actions > 1 {
			require.NoError(t, o.WaitOffload(t.Context(), 0, 0))
			require.NoError(t, o.DropSaved(0, 0, schedule.WaitOffload, false))
		}
		if actions > 2 {
			require.NoError(t, o.Reload(0, 0))
		}
		mb := o.call(frames.InBackward)
		_, err := mb.Take(1)
		require.ErrorIs(t, err, frames.ErrOffloaded)
		require.ErrorContains(t, err, `slot "moved"`)
		require.ErrorIs(t, o.Offload(0, 0), frames.ErrOffloaded)
		require.Equal(t, actions != 2, errors.Is(o.Reload(0, 0), frames.ErrOffloaded))
		require.ErrorIs(t, o.DropSaved(0, 0, frames.InBackward, true), frames.ErrOffloaded)
		o.Abort()
		require.Zero(t, o.near.Live())
		require.Zero(t, o.far.Live())
		require.Empty(t, o.owners())
	}
}

// TestFarLeak checks that a far copy that is never freed is a leak.
func TestFarLeak(t *testing.T) {
	o := newOffloading(t)
	_, err := o.far.Alloc(memory.Saved, 24)
	require.NoError(t, err)
	err = o.Audit(frames.Counts{})
	require.ErrorIs(t, err, frames.ErrLeak)
	leak, _ := errors.AsType[*frames.LeakError](err)
	require.EqualValues(t, 24, leak.Bytes)
	require.Equal(t, memory.Saved, leak.Class)
	require.Equal(t, "in far memory, beyond the copies that the step holds", leak.What)

	o = newOffloading(t)
	o.forward()
	require.NoError(t, o.Offload(0, 0))
	err = o.Audit(frames.Counts{effects.Saved: 1})
	require.ErrorContains(t, err, "1 frames in far memory are alive, but the plan has 0")
}

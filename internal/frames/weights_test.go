package frames_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/internal/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// newCopies is a context with one stage, which has two copies of weights for its forward
// and one for its backward. Its buffers are of 10, 11 and 12 bytes.
func newCopies(t *testing.T, recomputes bool) (*frames.Frames[memory.Handle], *memory.Arena, [2][]memory.Handle) {
	t.Helper()
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	c, err := frames.New(frames.Config[memory.Handle]{
		Space: arena, Rank: 3, Seed: 7,
		Stages: []*frames.Layout[memory.Handle]{{Name: "block", ForwardWeights: []string{"up", "down"}, BackwardWeights: []string{"up"}, Recomputes: recomputes}},
	})
	require.NoError(t, err)
	c.Begin(5, frames.Train, frames.Extent{Plan: &schedule.Plan{Windows: []int{1}}})
	alloc := func(bytes int64) memory.Handle {
		h, err := arena.Alloc(memory.FP8, bytes)
		require.NoError(t, err)
		return h
	}
	return c, arena, [2][]memory.Handle{{alloc(10), alloc(11)}, {alloc(12)}}
}

// TestCopiesOfWeights are lent where they are declared and there, and end apart (L14).
func TestCopiesOfWeights(t *testing.T) {
	c, arena, made := newCopies(t, false)
	var none memory.Handle
	view := c.Call(0, 0, frames.InForward)
	_, err := view.ForwardWeight(0)
	require.ErrorIs(t, err, frames.ErrDropped, "not made yet")

	call := c.Quantize(0)
	require.Equal(t, int64(5), call.Step())
	require.Equal(t, uint64(7), call.Seed())
	require.Equal(t, frames.Train, call.Pass())
	scratch, err := arena.Alloc(memory.Workspace, 100)
	require.NoError(t, err)
	require.NoError(t, call.Release(scratch))
	want := [2][]memory.Handle{slices.Clone(made[0]), slices.Clone(made[1])}
	for w, h := range made {
		require.NoError(t, c.PutAt(effects.ForwardWeights+effects.Place(w), 0, 0, h, 0))
		require.Equal(t, make([]memory.Handle, len(h)), h, "what was taken over is zero")
	}
	require.Equal(t, frames.Counts{effects.ForwardWeights: 1, effects.BackwardWeights: 1}, c.Counts())
	require.NoError(t, c.Audit(frames.Counts{effects.ForwardWeights: 1, effects.BackwardWeights: 1}))
	require.EqualValues(t, 33, c.Live())

	view = c.Call(0, 0, frames.InForward)
	for i := range 2 {
		h, err := view.ForwardWeight(i)
		require.NoError(t, err)
		require.Equal(t, want[0][i], h)
	}
	_, err = view.ForwardWeight(2)
	require.ErrorIs(t, err, frames.ErrUndeclared)
	_, err = view.BackwardWeight(0)
	require.ErrorIs(t, err, frames.ErrMisplaced)
	_ = c.End(nil)
	_, err = view.ForwardWeight(0)
	require.ErrorIs(t, err, frames.ErrEnded)
	for _, backward := range []frames.Call{frames.InBackward, frames.InBackwardInput} {
		view = c.Call(0, 0, backward)
		h, err := view.BackwardWeight(0)
		require.NoError(t, err)
		require.Equal(t, want[1][0], h)
		_, err = view.ForwardWeight(0)
		require.ErrorIs(t, err, frames.ErrMisplaced, "the last of these would find them dropped")
		scope := view.Scope()
		scope.Pass = frames.Recompute
		view.SetScope(scope)
		_, err = view.ForwardWeight(0)
		require.ErrorIs(t, err, frames.ErrMisplaced, "it does not declare that it recomputes")
		_, err = view.BackwardWeight(0)
		require.ErrorIs(t, err, frames.ErrMisplaced, "of a forward")
	}
	view = c.Call(0, 0, frames.InBackwardWeight)
	_, err = view.BackwardWeight(0)
	require.ErrorIs(t, err, frames.ErrMisplaced)

	require.NoError(t, c.DropAt(effects.ForwardWeights, 0, 0))
	require.EqualValues(t, 12, c.Live())
	view = c.Call(0, 0, frames.InForward)
	h, err := view.ForwardWeight(1)
	require.ErrorIs(t, err, frames.ErrDropped)
	require.ErrorContains(t, err, `batchctx: dropped after its last read: copy of "down" for the forward`)
	require.Equal(t, none, h)
	require.NoError(t, c.DropAt(effects.BackwardWeights, 0, 0))
	require.NoError(t, c.Audit(frames.Counts{}))
	require.Zero(t, arena.Live())
}

// TestRecomputeReadsCopies of the forward, where the stage declares that it recomputes. A
// decorator gives each child those of its own.
func TestRecomputeReadsCopies(t *testing.T) {
	c, _, made := newCopies(t, true)
	second := made[0][1]
	require.NoError(t, c.PutAt(effects.ForwardWeights, 0, 0, made[0], 0))
	view := c.Call(0, 0, frames.InBackward)
	_, err := view.ForwardWeight(1)
	require.ErrorIs(t, err, frames.ErrMisplaced, "not in its backward itself")
	scope := view.Scope()
	scope.Pass, scope.ForwardWeights = frames.Recompute, scope.ForwardWeights.Sub(1, 5)
	view.SetScope(scope)
	h, err := view.ForwardWeight(0)
	require.NoError(t, err)
	require.Equal(t, second, h)
	_, err = view.ForwardWeight(1)
	require.ErrorIs(t, err, frames.ErrUndeclared, "the scope is cut to what the stage has")
	c.Abort()
}

// TestCopiesAreSeen by the audit, in the dump and by an abort.
func TestCopiesAreSeen(t *testing.T) {
	c, arena, made := newCopies(t, false)
	require.NoError(t, c.PutAt(effects.ForwardWeights, 0, 0, made[0], 0))
	require.NoError(t, c.PutAt(effects.BackwardWeights, 0, 0, made[1], 0))
	require.ErrorContains(t, c.Audit(frames.Counts{effects.ForwardWeights: 1}), "0 bytes of class fp8: 1 sets of copies of weights alive where the plan has 0")

	var names []string
	for info := range c.Owners() {
		require.Equal(t, memory.FP8, info.Class)
		names = append(names, info.Name)
	}
	require.Equal(t, []string{
		"stage 0 (block): up for the forward", "stage 0 (block): down for the forward", "stage 0 (block): up for the backward",
	}, names)

	h, err := arena.Alloc(memory.FP8, 1)
	require.NoError(t, err)
	require.ErrorIs(t, c.PutAt(effects.BackwardWeights, 0, 0, []memory.Handle{h}, 0), frames.ErrOccupied)
	_, err = arena.Release(h)
	require.NoError(t, err)
	c.Abort()
	require.Zero(t, arena.Live())
	require.ErrorIs(t, c.PutAt(effects.BackwardWeights, 0, 0, make([]memory.Handle, 1), 0), frames.ErrMissing)
}

// TestKeptCopiesAreALeak that names the stage.
func TestKeptCopiesAreALeak(t *testing.T) {
	c, arena, made := newCopies(t, false)
	kept := made[1][0]
	require.NoError(t, arena.Retain(kept))
	require.NoError(t, c.PutAt(effects.BackwardWeights, 0, 0, made[1], 0))
	for _, h := range made[0] {
		_, err := arena.Release(h)
		require.NoError(t, err)
	}
	require.NoError(t, c.DropAt(effects.BackwardWeights, 0, 0))
	var leak *frames.LeakError
	require.ErrorAs(t, c.Audit(frames.Counts{}), &leak)
	require.Equal(t, "block", leak.Name)
	require.Equal(t, memory.FP8, leak.Class)
	require.EqualValues(t, 12, leak.Bytes)
	require.Contains(t, leak.What, "the copies of its weights were released with this action")
	_, err := arena.Release(kept)
	require.NoError(t, err)
}

// TestCopiesForTheInput are not made where nobody wants the gradient of the input: the
// context takes the others, and lends no more.
func TestCopiesForTheInput(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
		require.NoError(t, err)
		layout := &frames.Layout[memory.Handle]{Name: "block", BackwardWeights: []string{"up", "down"}, InputWeights: 1, InputGradient: wanted}
		c, err := frames.New(frames.Config[memory.Handle]{Space: arena, Stages: []*frames.Layout[memory.Handle]{layout}})
		require.NoError(t, err)
		c.Begin(0, frames.Train, frames.Extent{Plan: &schedule.Plan{Windows: []int{1}}})
		require.Equal(t, wanted, c.Quantize(0).InputGradient())
		c.Quantize(0).SetInputGradient(!wanted)
		require.Equal(t, wanted, c.Quantize(0).InputGradient(), "what a decorator sets is for its call")
		made := make([]memory.Handle, 2)
		made[1], err = arena.Alloc(memory.FP8, 8)
		require.NoError(t, err)
		err = c.PutAt(effects.BackwardWeights, 0, 0, made, 0)
		if wanted {
			require.ErrorIs(t, err, frames.ErrMissing)
			_, err = arena.Release(made[1])
			require.NoError(t, err)
		} else {
			require.NoError(t, err)
			view := c.Call(0, 0, frames.InBackward)
			_, err = view.BackwardWeight(0)
			require.ErrorIs(t, err, frames.ErrDropped)
			_, err = view.BackwardWeight(1)
			require.NoError(t, err)
			require.NoError(t, c.DropAt(effects.BackwardWeights, 0, 0))
		}
		c.Abort()
		require.Zero(t, arena.Live())
		require.NoError(t, arena.Close())
	}
	_, err := frames.New(frames.Config[memory.Handle]{Stages: []*frames.Layout[memory.Handle]{{Name: "block", InputWeights: 1}}})
	require.ErrorContains(t, err, "copies more are left out than there are")
}

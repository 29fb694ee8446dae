package frames_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
)

// newCopies returns frames with one stage that has two copies of weights for its forward and,
// between them, one for its backward. Their sizes are 10, 11 and 12 bytes.
func newCopies(t *testing.T, recomputes bool) (*frames.Frames[memory.Handle], *memory.Arena, []memory.Handle) {
	t.Helper()
	arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, arena.Close()) })
	c := frames.New(frames.Config[memory.Handle]{
		Space: arena, Rank: 3, Seed: 7,
		Stages: []*frames.Declaration[memory.Handle]{{Name: "block", Recomputes: recomputes, WeightCopies: []frames.WeightCopy{
			{Name: "up", At: frames.AtForward}, {Name: "up", At: frames.AtBackward}, {Name: "down", At: frames.AtForward},
		}}},
	})
	c.Begin(5, frames.Train, frames.Extent{Plan: &schedule.Plan{StageWindows: []int{1}}})
	alloc := func(bytes int64) memory.Handle {
		h, err := arena.Alloc(memory.FP8, bytes)
		require.NoError(t, err)
		return h
	}
	return c, arena, []memory.Handle{alloc(10), alloc(12), alloc(11)}
}

// quantize runs a QUANTIZE in which the stage puts copies.
func quantize(c *frames.Frames[memory.Handle], backward bool, made ...memory.Handle) error {
	call := batchctx.Quantization[memory.Handle](c.Quantize(0, backward).QuantizationView())
	for i, h := range made {
		if err := put(c, call, i, h); err != nil {
			return c.EndQuantize(err)
		}
	}
	return c.EndQuantize(nil)
}

// TestCopiesOfWeights checks that copies are lent to the declared calls, and end separately
// (L14).
func TestCopiesOfWeights(t *testing.T) {
	c, arena, made := newCopies(t, false)
	var none memory.Handle
	view := viewOf(c, 0, 0, frames.InForward)
	_, err := view.WeightCopy(0)
	require.ErrorIs(t, err, frames.ErrDropped, "not made yet")

	call := batchctx.Quantization[memory.Handle](c.Quantize(0, true).QuantizationView())
	require.Equal(t, int64(5), call.Step())
	require.Equal(t, uint64(7), call.Seed())
	require.Equal(t, frames.Train, call.Pass())
	scratch, err := arena.Alloc(memory.Workspace, 100)
	require.NoError(t, err)
	call.Release(scratch)
	require.NoError(t, quantize(c, true, made...))
	require.Equal(t, frames.Counts{effects.ForwardWeights: 1, effects.BackwardWeights: 1}, c.Counts())
	require.NoError(t, c.Audit(frames.Counts{effects.ForwardWeights: 1, effects.BackwardWeights: 1}))
	require.EqualValues(t, 33, c.Live())

	view = viewOf(c, 0, 0, frames.InForward)
	for _, i := range []int{0, 2} {
		h, err := view.WeightCopy(i)
		require.NoError(t, err)
		require.Equal(t, made[i], h)
	}
	_, err = view.WeightCopy(3)
	require.ErrorIs(t, err, frames.ErrUndeclared)
	_, err = view.WeightCopy(1)
	require.ErrorIs(t, err, frames.ErrMisplaced)
	_ = c.End(nil)
	_, err = view.WeightCopy(0)
	require.ErrorIs(t, err, frames.ErrEnded)
	for _, backward := range []frames.Call{frames.InBackward, frames.InBackwardInput} {
		view = viewOf(c, 0, 0, backward)
		h, err := view.WeightCopy(1)
		require.NoError(t, err)
		require.Equal(t, made[1], h)
		_, err = view.WeightCopy(0)
		require.ErrorIs(t, err, frames.ErrMisplaced, "the last of these would find them dropped")
		access := view.Access()
		access.Pass = frames.Recompute
		view.SetAccess(access)
		_, err = view.WeightCopy(0)
		require.ErrorIs(t, err, frames.ErrMisplaced, "it does not declare that it recomputes")
		_, err = view.WeightCopy(1)
		require.ErrorIs(t, err, frames.ErrMisplaced, "of a forward")
	}
	view = viewOf(c, 0, 0, frames.InBackwardWeight)
	_, err = view.WeightCopy(1)
	require.ErrorIs(t, err, frames.ErrMisplaced)

	require.NoError(t, c.DropAt(effects.ForwardWeights, 0, 0))
	require.EqualValues(t, 12, c.Live())
	view = viewOf(c, 0, 0, frames.InForward)
	h, err := view.WeightCopy(2)
	require.ErrorIs(t, err, frames.ErrDropped)
	require.ErrorContains(t, err, `batchctx: dropped after its last read: copy of "down" for the forward`)
	require.Equal(t, none, h)
	require.NoError(t, c.DropAt(effects.BackwardWeights, 0, 0))
	require.NoError(t, c.Audit(frames.Counts{}))
	require.Zero(t, arena.Live())
}

// TestRecomputeReadsCopies checks that a recompute reads copies for the forward if the stage
// declares that it recomputes. A decorator gives each child its own copies.
func TestRecomputeReadsCopies(t *testing.T) {
	c, _, made := newCopies(t, true)
	require.NoError(t, quantize(c, true, made...))
	view := viewOf(c, 0, 0, frames.InBackward)
	_, err := view.WeightCopy(2)
	require.ErrorIs(t, err, frames.ErrMisplaced, "not in its backward itself")
	access := view.Access()
	access.Pass, access.Copies = frames.Recompute, access.Copies.Sub(2, 5)
	view.SetAccess(access)
	h, err := view.WeightCopy(0)
	require.NoError(t, err)
	require.Equal(t, made[2], h)
	_, err = view.WeightCopy(1)
	require.ErrorIs(t, err, frames.ErrUndeclared, "the access is limited to the stage's own")
	c.Abort()
}

// TestCopiesAreSeen checks that audits, dumps and aborts include copies.
func TestCopiesAreSeen(t *testing.T) {
	c, arena, made := newCopies(t, false)
	require.NoError(t, quantize(c, true, made...))
	require.ErrorContains(t, c.Audit(frames.Counts{effects.ForwardWeights: 1}), "0 bytes of class fp8: 1 sets of copies of weights are alive, but the plan has 0")

	var names []string
	for info := range c.Owners() {
		require.Equal(t, memory.FP8, info.Class)
		names = append(names, info.Name)
	}
	require.Equal(t, []string{
		"stage 0 (block): up for the forward", "stage 0 (block): up for the backward", "stage 0 (block): down for the forward",
	}, names)

	h, err := arena.Alloc(memory.FP8, 1)
	require.NoError(t, err)
	require.ErrorIs(t, quantize(c, true, h), frames.ErrOccupied)
	c.Abort()
	require.Zero(t, arena.Live())
	require.ErrorIs(t, quantize(c, true), frames.ErrMissing)
	require.ErrorIs(t, quantize(c, true, memory.Handle{}), memory.ErrNone)
}

// TestKeptCopiesAreALeak checks that the leak names the stage.
func TestKeptCopiesAreALeak(t *testing.T) {
	c, arena, made := newCopies(t, false)
	kept := made[1]
	require.NoError(t, arena.Retain(kept))
	require.NoError(t, quantize(c, true, made...))
	require.NoError(t, c.DropAt(effects.ForwardWeights, 0, 0))
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

// TestCopiesThatAStepDoesNotNeed checks that a step makes no copies for the gradient of an input
// that it does not need, and no copies for a backward that it does not have. Putting such a copy
// fails, and so does omitting a copy that is needed.
func TestCopiesThatAStepDoesNotNeed(t *testing.T) {
	copies := []frames.WeightCopy{{Name: "up", At: frames.AtBackward, InputOnly: true}, {Name: "down", At: frames.AtForward}, {Name: "down", At: frames.AtBackward}}
	for _, test := range []struct {
		backward, gradient bool
		needed             []int
	}{{true, true, []int{0, 1, 2}}, {true, false, []int{1, 2}}, {false, false, []int{1}}} {
		arena, err := memory.NewArena(memory.ArenaConfig{Capacity: 1 << 20})
		require.NoError(t, err)
		declared := &frames.Declaration[memory.Handle]{Name: "block", WeightCopies: copies, InputGradient: test.gradient}
		c := frames.New(frames.Config[memory.Handle]{Space: arena, Stages: []*frames.Declaration[memory.Handle]{declared}})
		c.Begin(0, frames.Train, frames.Extent{Plan: &schedule.Plan{StageWindows: []int{1}}})
		alloc := func() memory.Handle {
			h, err := arena.Alloc(memory.FP8, 8)
			require.NoError(t, err)
			return h
		}
		for i := range copies {
			call := batchctx.Quantization[memory.Handle](c.Quantize(0, test.backward).QuantizationView())
			needed := slices.Contains(test.needed, i)
			require.Equal(t, needed, call.Wants(batchctx.Copy(i+1)))
			if !needed {
				require.ErrorIs(t, put(c, call, i, alloc()), frames.ErrUndeclared)
				continue
			}
			require.ErrorIs(t, c.EndQuantize(nil), frames.ErrMissing)
			call = batchctx.Quantization[memory.Handle](c.Quantize(0, test.backward).QuantizationView())
			require.NoError(t, put(c, call, i, alloc()))
		}
		require.NoError(t, c.EndQuantize(nil))
		for i, w := range copies {
			in := frames.InForward
			if w.At == frames.AtBackward {
				in = frames.InBackward
			}
			_, err = viewOf(c, 0, 0, in).WeightCopy(i)
			if slices.Contains(test.needed, i) {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, frames.ErrDropped)
			}
		}
		if test.backward {
			require.NoError(t, c.DropAt(effects.BackwardWeights, 0, 0))
		}
		require.NoError(t, c.DropAt(effects.ForwardWeights, 0, 0))
		require.NoError(t, c.Audit(frames.Counts{}))
		require.Zero(t, arena.Live())
		require.NoError(t, arena.Close())
	}
}

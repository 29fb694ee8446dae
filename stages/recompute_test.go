package stages_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

func TestRecomputeDeclares(t *testing.T) {
	b := newBench(t)
	a := b.scale("a", 1)
	spec := stages.Recompute[handle](a).Spec()
	require.Equal(t, append([]string{"input x", "input index"}, a.Spec().Slots...), spec.Slots)
	require.True(t, spec.Recomputes)
	require.Equal(t, []stages.Read{
		{Part: "part of a", At: batchctx.AtForward | batchctx.AtBackward}, // a recompute is a read
		{Part: "part of a", At: batchctx.AtBackward | batchctx.AtWeight},
	}, spec.Reads)
	require.Zero(t, a.Spec().Reads[0].At, "the stage itself is as it was")
	require.Equal(t, a.Spec().Losses, spec.Losses)

	twice := stages.Recompute(stages.Recompute[handle](a)).Spec()
	require.Len(t, twice.Slots, len(a.Spec().Slots)+2*len(wire))
}

func TestRecomputeTellsThePass(t *testing.T) { // L13
	const train, again, eval = batchctx.Train, batchctx.Recompute, batchctx.Eval
	for name, test := range map[string]struct {
		make func(t testing.TB, a, b, c stage) []stage
		want []batchctx.Pass // of stage b, in a step of one microbatch
	}{
		"once":  {func(_ testing.TB, a, b, c stage) []stage { return []stage{a, stages.Recompute(b), c} }, []batchctx.Pass{train, again, train}},
		"twice": {models[6].make, []batchctx.Pass{train, again, again, train}},
		"within": {func(t testing.TB, a, b, c stage) []stage {
			return []stage{stages.Recompute(sequential(t, "s", a, b)), c}
		}, []batchctx.Pass{train, again, train}},
		"within and around": {func(t testing.TB, a, b, c stage) []stage {
			return []stage{stages.Recompute(sequential(t, "s", a, stages.Recompute(b))), c}
		}, []batchctx.Pass{train, again, again, train}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			scales, wrapped := b.scales(false)
			r, source := b.build(t, setting{}, test.make(t, wrapped[0], wrapped[1], wrapped[2])...)
			_, err := r.Step(t.Context(), 1, source)
			require.NoError(t, err)
			require.Equal(t, test.want, scales[1].passes)

			scales[1].passes = nil
			_, err = r.Evaluate(t.Context(), 1, source)
			require.NoError(t, err)
			require.Equal(t, []batchctx.Pass{eval}, scales[1].passes)
		})
	}
}

// hoarder is a scale that also saves 4000 bytes that no call takes.
type hoarder struct{ *scale }

func (h hoarder) Forward(ctx context.Context, mb view, in, out []handle) error {
	if err := h.scale.Forward(ctx, mb, in, out); err != nil {
		return err
	}
	much, _ := h.alloc(memory.Saved, 1000)
	mb.SaveFor(batchctx.ByWeight, 2, much)
	return nil
}

func (h hoarder) Backward(ctx context.Context, mb view, gradOut, gradIn []handle) error {
	mb.ReleaseSaved(2)
	return h.scale.Backward(ctx, mb, gradOut, gradIn)
}

func TestRecomputeKeepsItsInputsOnly(t *testing.T) {
	for name, test := range map[string]struct {
		decorate func(stage) stage
		want     int64
	}{
		"as it is":  {func(s stage) stage { return s }, 4000},
		"recompute": {stages.Recompute[handle], 0},
		"twice":     {func(s stage) stage { return stages.Recompute(stages.Recompute(s)) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			// The next stage runs its forward while the step holds the saved tensors.
			var saved int64
			after := &stages.Func[handle]{
				Declares: stages.Spec{Name: "after", Inputs: wire, Outputs: wire},
				ForwardFunc: func(_ context.Context, mb view, in, out []handle) error {
					var stats memory.Stats
					b.arena.Stats(&stats)
					saved = stats.Classes[memory.Saved]
					out[0], out[1] = mb.Retain(in[0]), mb.Retain(in[1])
					return nil
				},
				BackwardFunc: func(_ context.Context, mb view, gradOut, gradIn []handle) error {
					gradIn[0] = mb.Retain(gradOut[0])
					return nil
				},
			}
			r, source := b.build(t, setting{}, test.decorate(hoarder{b.scale("a", 1)}), after)
			_, err := r.Step(t.Context(), 1, source)
			require.NoError(t, err)
			require.Equal(t, test.want, saved)
		})
	}
}

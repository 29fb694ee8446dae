package stages_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

func TestSequentialReportsEveryFault(t *testing.T) {
	_, err := stages.Sequential[handle]("empty")
	require.ErrorContains(t, err, `"empty" has no stages`)

	b := newBench(t)
	a := stage(b.scale("a", 1))
	narrow := &stages.Func[handle]{Declares: stages.Spec{Name: "narrow", Inputs: wire[:1], Outputs: wire[:1]}}
	_, err = stages.Sequential("s", a, narrow, a)
	require.ErrorContains(t, err, `"a" returns 2 tensors, but "narrow" takes 1`)
	require.ErrorContains(t, err, `"narrow" returns 1 tensors, but "a" takes 2`)
}

func TestSequentialDeclares(t *testing.T) {
	b := newBench(t)
	scales, wrapped := b.scales(false)
	s := sequential(t, "s", wrapped[0], sequential(t, "inner", wrapped[1], stages.Recompute(wrapped[2])))
	spec := s.Spec()
	require.Equal(t, "s", spec.Name)
	require.Equal(t, wire, spec.Inputs)
	require.Equal(t, wire, spec.Outputs)
	require.Len(t, spec.Slots, 2+2+4)
	require.Len(t, spec.Reads, 6)
	require.Equal(t, []string{"metric of a", "metric of b", "metric of c"}, spec.Losses)
	require.True(t, spec.Recomputes)
	require.False(t, spec.Frozen)
	var grads []handle
	for _, p := range stages.Params(s) {
		grads = append(grads, p.Grad)
	}
	require.Equal(t, []handle{scales[0].grad, scales[1].grad, scales[2].grad}, grads)

	require.True(t, sequential(t, "s", stages.Freeze(wrapped[0]), stages.Freeze(wrapped[1])).Spec().Frozen)
	require.False(t, sequential(t, "s", wrapped[0]).Spec().Recomputes)
}

// between runs a step of a, then a stage with one fault, then c: as separate stages or as one
// sequence. A panic is returned as an error.
func between(t *testing.T, whole bool, wrong func(b *bench) *stages.Func[handle]) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("a stage that does nothing wrong panics: %v", value)
		}
	}()
	b := newBench(t)
	_, wrapped := b.scales(false)
	chain := []stage{wrapped[0], wrong(b), wrapped[2]}
	if whole {
		chain = []stage{sequential(t, "s", chain...)}
	}
	r, source := b.build(t, setting{}, chain...)
	_, err = r.Step(t.Context(), 2, source)
	return err
}

// relay returns a stage that returns its inputs, and the gradients of its outputs.
func relay() *stages.Func[handle] {
	return &stages.Func[handle]{
		Declares: stages.Spec{Name: "wrong", Inputs: wire, Outputs: wire},
		ForwardFunc: func(_ context.Context, mb view, in, out []handle) error {
			out[0], out[1] = mb.Retain(in[0]), mb.Retain(in[1])
			return nil
		},
		BackwardFunc: func(_ context.Context, mb view, gradOut, gradIn []handle) error {
			gradIn[0] = mb.Retain(gradOut[0])
			return nil
		},
	}
}

// inForward returns a relay with an additional function at the end of its forward.
func inForward(f func(b *bench, mb view, in, out []handle) error) func(b *bench) *stages.Func[handle] {
	return func(b *bench) *stages.Func[handle] {
		s := relay()
		right := s.ForwardFunc
		s.ForwardFunc = func(ctx context.Context, mb view, in, out []handle) error {
			if err := right(ctx, mb, in, out); err != nil {
				return err
			}
			return f(b, mb, in, out)
		}
		return s
	}
}

// inBackward returns a relay with an additional function at the end of its backward.
func inBackward(f func(b *bench, mb view, gradOut, gradIn []handle) error) func(b *bench) *stages.Func[handle] {
	return func(b *bench) *stages.Func[handle] {
		s := relay()
		right := s.BackwardFunc
		s.BackwardFunc = func(ctx context.Context, mb view, gradOut, gradIn []handle) error {
			if err := right(ctx, mb, gradOut, gradIn); err != nil {
				return err
			}
			return f(b, mb, gradOut, gradIn)
		}
		return s
	}
}

// TestASequenceKeepsStagesApart: a stage of a sequence cannot access what only its neighbors have
// declared.
func TestASequenceKeepsStagesApart(t *testing.T) {
	for name, test := range map[string]struct {
		wrong func(b *bench) *stages.Func[handle]
		want  error
	}{
		"a slot that it did not declare": {inForward(func(b *bench, mb view, _, _ []handle) error {
			h, _ := b.alloc(memory.Saved, 1)
			mb.Save(1, h)
			return nil
		}), batchctx.ErrUndeclared},
		"a slot before its own": {inForward(func(b *bench, mb view, _, _ []handle) error {
			h, _ := b.alloc(memory.Saved, 1)
			mb.Save(0, h)
			return nil
		}), batchctx.ErrUndeclared},
		"a read that it did not declare": {inForward(func(_ *bench, mb view, _, _ []handle) error {
			mb.Part(1)
			return nil
		}), batchctx.ErrUndeclared},
		"a loss that it did not declare": {inForward(func(_ *bench, mb view, _, _ []handle) error {
			mb.Loss(1, 1, 1)
			return nil
		}), batchctx.ErrUndeclared},
		"a parameter that it does not have": {inBackward(func(_ *bench, mb view, _, _ []handle) error {
			mb.GradFirst(1)
			return nil
		}), batchctx.ErrUndeclared},
		"a loss seed that it did not declare": {inBackward(func(_ *bench, mb view, _, _ []handle) error {
			mb.LossSeed(0)
			return nil
		}), batchctx.ErrUndeclared},
	} {
		t.Run(name, func(t *testing.T) {
			err := between(t, false, test.wrong)
			require.ErrorIs(t, err, test.want, "apart")
			err = between(t, true, test.wrong)
			require.ErrorIs(t, err, test.want, "in a sequence")
		})
	}
}

// TestASequenceChecksWhatItHandsOn: a sequence rejects the same tensors between its stages as
// the runner does.
func TestASequenceChecksWhatItHandsOn(t *testing.T) {
	for name, test := range map[string]struct {
		wrong func(b *bench) *stages.Func[handle]
		want  error
	}{
		"an output that is missing": {inForward(func(_ *bench, mb view, _, out []handle) error {
			defer func() { out[0] = handle{} }()
			mb.Release(out[0])
			return nil
		}), memory.ErrNone},
		"a gradient that is missing": {inBackward(func(_ *bench, mb view, _, gradIn []handle) error {
			defer func() { gradIn[0] = handle{} }()
			mb.Release(gradIn[0])
			return nil
		}), memory.ErrNone},
		"an input returned without Retain": {inForward(func(_ *bench, mb view, _, out []handle) error {
			mb.Release(out[0])
			return nil
		}), memory.ErrNoPlain},
		"a gradient returned without Retain": {inBackward(func(_ *bench, mb view, _, gradIn []handle) error {
			mb.Release(gradIn[0])
			return nil
		}), memory.ErrNoPlain},
		"an output that ended": {inForward(func(b *bench, mb view, _, out []handle) error {
			mb.Release(out[0])
			out[0], _ = b.alloc(memory.Activation, 3)
			mb.Release(out[0])
			return nil
		}), memory.ErrStale},
		"an input that it releases": {inForward(func(_ *bench, mb view, in, out []handle) error {
			mb.Release(in[0]) // the reference of out[0], which is the same tensor
			mb.Release(in[0])
			return nil
		}), memory.ErrNoPlain},
		"a workspace that it keeps": {inForward(func(b *bench, _ view, _, _ []handle) error {
			b.alloc(memory.Workspace, 1)
			return nil
		}), batchctx.ErrLeak},
		"an input that it keeps": {inForward(func(_ *bench, mb view, in, _ []handle) error {
			mb.Retain(in[0])
			return nil
		}), batchctx.ErrLeak},
	} {
		t.Run(name, func(t *testing.T) {
			err := between(t, false, test.wrong)
			require.ErrorIs(t, err, test.want, "apart")
			err = between(t, true, test.wrong)
			require.ErrorIs(t, err, test.want, "in a sequence")
		})
	}
}

// TestSequentialValidatesItsStages: Sequential reports the same faults of its stages as
// Config.Validate of a runner.
func TestSequentialValidatesItsStages(t *testing.T) {
	a := stage(newBench(t).scale("a", 1))
	t.Run("nil", func(t *testing.T) {
		require.NotPanics(t, func() {
			_, err := stages.Sequential("s", a, nil)
			require.ErrorContains(t, err, "nil")
		})
	})
	t.Run("bad spec", func(t *testing.T) {
		negative := relay()
		negative.Declares.Slots = []string{""}
		_, err := stages.Sequential("s", a, negative)
		require.ErrorContains(t, err, "slot 0 has no name")
	})
}

// TestIdentity puts identities between the stages of a model: only the number of stages changes, and
// no additional byte is allocated.
func TestIdentity(t *testing.T) {
	identity := func(name string) stage { return stages.Identity[handle](name, wire...) }
	peak := func(b *bench) int64 {
		var stats memory.Stats
		b.arena.Stats(&stats)
		return stats.Peak
	}
	want, plain := train(t, setting{}, true, false, models[0].make)
	late, plainLate := train(t, setting{rule: weightsLate(1, 2, 3)}, true, false, models[0].make)
	require.Equal(t, want, late)
	for name, test := range map[string]struct {
		make    func(t testing.TB, a, b, c stage) []stage
		between []int // the stages between bottom and top
	}{
		"between": {func(_ testing.TB, a, b, c stage) []stage {
			return []stage{identity("r0"), a, b, identity("r1"), identity("r2"), c}
		}, []int{1, 2, 3, 4, 5, 6}},
		"within": {func(t testing.TB, a, b, c stage) []stage {
			return []stage{a, sequential(t, "s", identity("r0"), b), c}
		}, []int{1, 2, 3}},
		"recomputed": {func(_ testing.TB, a, b, c stage) []stage {
			return []stage{a, stages.Recompute(identity("r0")), b, c}
		}, []int{1, 2, 3, 4}},
		"frozen": {func(_ testing.TB, a, b, c stage) []stage {
			return []stage{a, stages.Freeze(identity("r0")), b, c}
		}, []int{1, 2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			got, b := train(t, setting{}, true, false, test.make)
			require.Equal(t, want, got)
			require.Equal(t, peak(plain), peak(b))
			got, b = train(t, setting{rule: weightsLate(test.between...)}, true, false, test.make)
			require.Equal(t, want, got, "I and W apart")
			require.Equal(t, peak(plainLate), peak(b), "I and W apart")
		})
	}
}

// TestIdentityAtTheEnd has no gradient to return.
func TestIdentityAtTheEnd(t *testing.T) {
	r := stages.Identity[handle]("r", wire...)
	require.ErrorContains(t, r.Backward(t.Context(), view{}, nil, make([]handle, 2)), `identity "r" is the last stage`)
	require.NoError(t, r.Backward(t.Context(), view{}, nil, nil))
}

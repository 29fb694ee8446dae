package stages_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

// copied is a relay that makes so many copies of weights, and looks for its own in every
// call: each has a number of elements of its own.
func (b *bench) copied(t *testing.T, name string, size, forward, backward int) *stages.Func[handle] {
	s := relay()
	s.Declares.Name, s.Declares.ForwardWeights, s.Declares.BackwardWeights = name, forward, backward
	s.QuantizeFunc = func(_ context.Context, call *batchctx.Quantization[handle], made, more []handle) error {
		b.calls = append(b.calls, name)
		require.Len(t, made, forward)
		require.Equal(t, call.Pass() == batchctx.Eval, more == nil)
		for i := range made {
			made[i], _ = b.alloc(memory.FP8, size+i)
		}
		for i := range more {
			more[i], _ = b.alloc(memory.FP8, size+forward+i)
		}
		return nil
	}
	inForward, inBackward := s.ForwardFunc, s.BackwardFunc
	s.ForwardFunc = func(ctx context.Context, mb *view, in, out []handle) error {
		for i := range forward {
			h, err := mb.ForwardWeight(i)
			require.NoError(t, err)
			require.Len(t, b.floats(h), size+i)
		}
		_, err := mb.ForwardWeight(forward)
		require.ErrorIs(t, err, batchctx.ErrUndeclared)
		return inForward(ctx, mb, in, out)
	}
	s.BackwardFunc = func(ctx context.Context, mb *view, gradOut, gradIn []handle) error {
		for i := range backward {
			h, err := mb.BackwardWeight(i)
			require.NoError(t, err)
			require.Len(t, b.floats(h), size+forward+i)
		}
		_, err := mb.BackwardWeight(backward)
		require.ErrorIs(t, err, batchctx.ErrUndeclared)
		return inBackward(ctx, mb, gradOut, gradIn)
	}
	return s
}

// TestDecoratorsPassCopiesOn: each stage of a sequence has its own, also where a part of
// it recomputes or is frozen.
func TestDecoratorsPassCopiesOn(t *testing.T) { // L14
	b := newBench(t)
	plain := relay()
	plain.Declares.Name = "plain"
	s := sequential(t, "s",
		b.copied(t, "a", 10, 2, 1),
		stages.Recompute[handle](b.copied(t, "b", 20, 1, 2)),
		plain,
		sequential(t, "inner", stages.Freeze[handle](b.copied(t, "c", 30, 0, 3)), b.copied(t, "d", 40, 3, 0)))
	spec := s.Spec()
	require.Equal(t, 6, spec.ForwardWeights)
	require.Equal(t, 6, spec.BackwardWeights)
	require.True(t, spec.Quantizes())
	r, source := b.build(t, setting{}, stages.Recompute(s))
	_, err := r.Step(t.Context(), 3, source)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c", "d"}, b.calls)
	_, err = r.Evaluate(t.Context(), 3, source)
	require.NoError(t, err)
	require.Len(t, b.calls, 8)
}

// TestSequenceQuantizeFails with what an inner stage says, and keeps nothing.
func TestSequenceQuantizeFails(t *testing.T) {
	b := newBench(t)
	last := b.copied(t, "b", 20, 1, 1)
	last.QuantizeFunc = func(context.Context, *batchctx.Quantization[handle], []handle, []handle) error { return errPlanted }
	r, source := b.build(t, setting{}, sequential(t, "s", b.copied(t, "a", 10, 1, 1), last))
	before := b.arena.Live()
	_, err := r.Step(t.Context(), 3, source)
	require.ErrorIs(t, err, errPlanted)
	require.Equal(t, before, b.arena.Live())

	last.QuantizeFunc = nil
	_, err = r.Step(t.Context(), 3, source)
	require.ErrorContains(t, err, `"b" has no QuantizeFunc`)

	undeclared := struct{ stage }{b.copied(t, "c", 30, 1, 0)}
	r, source = b.build(t, setting{}, sequential(t, "s", undeclared))
	_, err = r.Step(t.Context(), 3, source)
	require.ErrorContains(t, err, `stage 0 of sequence "s" declares copies of weights and is no Quantizer`)

	bad := stages.Spec{Name: "bad", ForwardWeights: -1}
	require.ErrorContains(t, errors.Join(bad.Validate()), "-1 copies of weights for the forward and 0 for the backward")
}

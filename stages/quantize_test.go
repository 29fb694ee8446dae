package stages_test

import (
	"context"
	"slices"
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
	s.Declares.Name = name
	s.Declares.ForwardWeights, s.Declares.BackwardWeights = slices.Repeat([]string{name + ".up"}, forward), slices.Repeat([]string{name + ".down"}, backward)
	s.QuantizeFunc = func(_ context.Context, _ batchctx.Quantization[handle], made, more []handle) error {
		call := name
		if more == nil {
			call += " forward"
		}
		b.calls = append(b.calls, call)
		require.Len(t, made, forward)
		for i := range made {
			made[i], _ = b.alloc(memory.FP8, size+i)
		}
		for i := range more {
			more[i], _ = b.alloc(memory.FP8, size+forward+i)
		}
		return nil
	}
	inForward, inBackward := s.ForwardFunc, s.BackwardFunc
	s.ForwardFunc = func(ctx context.Context, mb view, in, out []handle) error {
		for i := range forward {
			h := mb.ForwardWeight(i)
			require.Len(t, b.floats(h), size+i)
		}
		if b.reaches == name+"'s forward" {
			mb.ForwardWeight(forward)
		}
		return inForward(ctx, mb, in, out)
	}
	s.BackwardFunc = func(ctx context.Context, mb view, gradOut, gradIn []handle) error {
		for i := range backward {
			h := mb.BackwardWeight(i)
			require.Len(t, b.floats(h), size+forward+i)
		}
		if b.reaches == name+"'s backward" {
			mb.BackwardWeight(backward)
		}
		if gradIn == nil { // nobody wants it
			return nil
		}
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
	require.Equal(t, []string{"a.up", "a.up", "b.up", "d.up", "d.up", "d.up"}, spec.ForwardWeights)
	require.Equal(t, []string{"a.down", "b.down", "b.down", "c.down", "c.down", "c.down"}, spec.BackwardWeights)
	require.Zero(t, spec.InputWeights)
	require.True(t, spec.Quantizes())
	r, source := b.build(t, setting{}, stages.Recompute(s))
	_, err := r.Step(t.Context(), 3, source)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "c", "d"}, b.calls)
	_, err = r.Evaluate(t.Context(), 3, source)
	require.NoError(t, err)
	require.Equal(t, []string{"a forward", "b forward", "c forward", "d forward"}, b.calls[4:])

	for _, b.reaches = range []string{"a's forward", "a's backward", "d's forward", "c's backward"} { // beyond its own
		_, err = r.Step(t.Context(), 3, source)
		require.ErrorIs(t, err, batchctx.ErrUndeclared, b.reaches)
	}
}

// TestFrozenPrefixIsNotCopied: what comes before the first stage that trains has copies for
// the backward where somebody wants the gradient of the sequence's input, and else none.
func TestFrozenPrefixIsNotCopied(t *testing.T) { // L14
	for _, frozen := range []bool{false, true} {
		b := newBench(t)
		inner := sequential(t, "inner", stages.Freeze[handle](b.copied(t, "b", 20, 1, 1)), b.copied(t, "c", 30, 1, 2), stages.Freeze[handle](b.copied(t, "d", 40, 1, 1)))
		require.Equal(t, 1, inner.Spec().InputWeights)
		s := sequential(t, "s", stages.Freeze[handle](b.copied(t, "a", 10, 1, 3)), inner, b.copied(t, "e", 50, 1, 1))
		require.Equal(t, 4, s.Spec().InputWeights)
		want := []string{"a", "b", "c", "d", "e"}
		if frozen { // and so is all before the sequence
			want = []string{"a forward", "b forward", "c", "d", "e"}
		}
		r, source := b.build(t, setting{frozen: frozen}, s)
		before := b.arena.Live()
		for range 2 {
			b.calls = nil
			result, err := r.Step(t.Context(), 3, source)
			require.NoError(t, err)
			require.Zero(t, result.Excess)
			require.Equal(t, want, b.calls)
			require.Equal(t, before, b.arena.Live())
		}
	}
}

// TestSequenceQuantizeFails with what an inner stage says, and keeps nothing.
func TestSequenceQuantizeFails(t *testing.T) {
	b := newBench(t)
	last := b.copied(t, "b", 20, 1, 1)
	last.QuantizeFunc = func(context.Context, batchctx.Quantization[handle], []handle, []handle) error { return errPlanted }
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

	bad := stages.Spec{Name: "bad", ForwardWeights: []string{"up", ""}, InputWeights: 1}
	require.ErrorContains(t, bad.Validate(), "copy 1 of its weights for the forward has no name")
	require.ErrorContains(t, bad.Validate(), "1 of 0 copies of its weights for the backward are for the gradient of its input")
}

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

// copied returns a relay that makes several copies of weights, and requires in every call that it
// gets its own copies. Each copy has a different number of elements.
func (b *bench) copied(t *testing.T, name string, size, forward, backward int) *stages.Func[handle] {
	s := relay()
	s.Declares.Name = name
	for range forward {
		s.Declares.WeightCopies = append(s.Declares.WeightCopies, batchctx.WeightCopy{Name: name + ".up", At: batchctx.AtForward})
	}
	for range backward {
		s.Declares.WeightCopies = append(s.Declares.WeightCopies, batchctx.WeightCopy{Name: name + ".down", At: batchctx.AtBackward})
	}
	s.QuantizeFunc = func(_ context.Context, call batchctx.Quantization[handle]) error {
		made := 0
		for i := range forward + backward {
			if k := batchctx.Copy(i + 1); call.Wants(k) {
				h, _ := b.alloc(memory.FP8, size+i)
				call.Put(k, h)
				made++
			}
		}
		b.calls = append(b.calls, fmt.Sprintf("%s %d of %d", name, made, forward+backward))
		require.False(t, call.Wants(batchctx.Copy(forward+backward+1)))
		if b.reaches == name+"'s copies" {
			h, _ := b.alloc(memory.FP8, 1)
			call.Put(batchctx.Copy(forward+backward+1), h)
		}
		return nil
	}
	inForward, inBackward := s.ForwardFunc, s.BackwardFunc
	s.ForwardFunc = func(ctx context.Context, mb view, in, out []handle) error {
		for i := range forward {
			h := mb.WeightCopy(batchctx.Copy(i + 1))
			require.Len(t, b.floats(h), size+i)
		}
		if b.reaches == name+"'s forward" {
			mb.WeightCopy(batchctx.Copy(forward + backward + 1))
		}
		return inForward(ctx, mb, in, out)
	}
	s.BackwardFunc = func(ctx context.Context, mb view, gradOut, gradIn []handle) error {
		for i := range backward {
			h := mb.WeightCopy(batchctx.Copy(forward + i + 1))
			require.Len(t, b.floats(h), size+forward+i)
		}
		if b.reaches == name+"'s backward" {
			mb.WeightCopy(batchctx.Copy(forward + backward + 1))
		}
		if gradIn == nil { // it is not needed
			return nil
		}
		return inBackward(ctx, mb, gradOut, gradIn)
	}
	return s
}

// TestDecoratorsPassCopiesOn: each stage of a sequence gets its own copies, even if a part of the
// sequence recomputes or is frozen.
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
	var names []string
	for _, w := range spec.WeightCopies {
		names = append(names, w.Name)
		require.False(t, w.InputOnly)
	}
	require.Equal(t, []string{
		"a.up", "a.up", "a.down", "b.up", "b.down", "b.down", "c.down", "c.down", "c.down", "d.up", "d.up", "d.up",
	}, names)
	require.True(t, spec.Quantizes())
	r, source := b.build(t, setting{}, stages.Recompute(s))
	_, err := r.Step(t.Context(), 3, source)
	require.NoError(t, err)
	require.Equal(t, []string{"a 3 of 3", "b 3 of 3", "c 3 of 3", "d 3 of 3"}, b.calls)
	_, err = r.Evaluate(t.Context(), 3, source)
	require.NoError(t, err)
	require.Equal(t, []string{"a 2 of 3", "b 1 of 3", "c 0 of 3", "d 3 of 3"}, b.calls[4:])

	for _, b.reaches = range []string{"a's copies", "a's forward", "a's backward", "d's copies", "d's forward", "c's backward"} { // not its own
		_, err = r.Step(t.Context(), 3, source)
		require.ErrorIs(t, err, batchctx.ErrUndeclared, b.reaches)
	}
}

// TestFrozenPrefixIsNotCopied: the stages before the first one that trains have copies for the
// backward only if the gradient of the sequence's input is needed.
func TestFrozenPrefixIsNotCopied(t *testing.T) { // L14
	for _, frozen := range []bool{false, true} {
		b := newBench(t)
		inner := sequential(t, "inner", stages.Freeze[handle](b.copied(t, "b", 20, 1, 1)), b.copied(t, "c", 30, 1, 2), stages.Freeze[handle](b.copied(t, "d", 40, 1, 1)))
		require.Equal(t, []string{"b.down"}, inputOnly(inner))
		s := sequential(t, "s", stages.Freeze[handle](b.copied(t, "a", 10, 1, 3)), inner, b.copied(t, "e", 50, 1, 1))
		require.Equal(t, []string{"a.down", "a.down", "a.down", "b.down"}, inputOnly(s))
		want := []string{"a 4 of 4", "b 2 of 2", "c 3 of 3", "d 2 of 2", "e 2 of 2"}
		if frozen { // then so is everything before the sequence
			want[0], want[1] = "a 1 of 4", "b 1 of 2"
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

// inputOnly returns the names of the copies that are only for the gradient of the input.
func inputOnly(s stage) (names []string) {
	for _, w := range s.Spec().WeightCopies {
		if w.InputOnly {
			names = append(names, w.Name)
		}
	}
	return names
}

// TestSequenceQuantizeFails with the error of an inner stage, and keeps nothing.
func TestSequenceQuantizeFails(t *testing.T) {
	b := newBench(t)
	last := b.copied(t, "b", 20, 1, 1)
	last.QuantizeFunc = func(context.Context, batchctx.Quantization[handle]) error { return errPlanted }
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
	require.ErrorContains(t, err, `stage 0 of sequence "s" declares copies of weights and is not a Quantizer`)

	bad := stages.Spec{Name: "bad", WeightCopies: []batchctx.WeightCopy{{Name: "up", At: batchctx.AtWeight}, {At: batchctx.AtForward, InputOnly: true}}}
	require.ErrorContains(t, bad.Validate(), `the copy of weight "up" is read at "AtWeight", want AtForward or AtBackward`)
	require.ErrorContains(t, bad.Validate(), "copy 1 of its weights has no name")
	require.ErrorContains(t, bad.Validate(), "is AtForward and InputOnly")
}

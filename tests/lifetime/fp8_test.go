package lifetime_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/fp8"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
)

// TestACopyKeptBeyondItsDropIsCaught keeps a copy of a weight that QUANTIZE has made. The step ends
// with an error at the microbatch after which the plan drops the copy.
func TestACopyKeptBeyondItsDropIsCaught(t *testing.T) {
	for _, m := range []int{1, 4} {
		n := newNetwork(t)
		before := n.dev.Live()
		var workspaces []buffer
		n.linear.forward = func(l *linear, mb microbatch, _ buffer) error {
			w := mb.WeightCopy(1)
			if len(workspaces) == 0 {
				workspaces = append(workspaces, mb.Retain(w))
			}
			return nil
		}
		r, err := runner.New(n.config())
		require.NoError(t, err)
		_, err = r.Step(t.Context(), m, n)
		var found *batchctx.LeakError
		require.ErrorAs(t, err, &found)
		require.Equal(t, memory.FP8, found.Class)
		require.Equal(t, m-1, found.Microbatch, "the last forward that reads it")
		require.Equal(t, before, n.dev.Live())
		require.NoError(t, r.Close())
	}
}

// TestFP8LeaksThatCannotBeSaid covers leaks that the API cannot express or rejects with a specific
// error.
func TestFP8LeaksThatCannotBeSaid(t *testing.T) {
	refused := func(want error, name string, change func(n *network)) {
		t.Helper()
		n := newNetwork(t)
		before := n.dev.Live()
		change(n)
		r, err := runner.New(n.config())
		require.NoError(t, err)
		_, err = r.Step(t.Context(), 4, n)
		require.ErrorIs(t, err, want, name)
		require.Equal(t, before, n.dev.Live(), name)
		require.NoError(t, r.Close())
	}
	refused(batchctx.ErrTaken, "saved state is taken twice", func(n *network) {
		n.linear.backward = func(_ *linear, mb microbatch, _ buffer, _, _ *fp8.Tensor) error {
			_, err := fp8.Take(mb, 1, shape("input", rows, in), fp8.Columnwise)
			return err
		}
	})
	refused(fp8.ErrLost, "both halves are saved", func(n *network) {
		n.linear.save = func(_ *linear, mb microbatch, x *fp8.Tensor) error { return x.Save(mb, batchctx.ByBackward, 1) }
	})
	refused(fp8.ErrKept, "a half is used after another one was kept", func(n *network) {
		n.linear.save = func(_ *linear, mb microbatch, x *fp8.Tensor) error {
			err := x.Keep(mb, fp8.Columnwise)
			_, used := x.Rowwise()
			return errors.Join(err, used)
		}
	})
	refused(batchctx.ErrMisplaced, "a backward reads the forward's copy", func(n *network) {
		n.linear.backward = func(_ *linear, mb microbatch, _ buffer, _, _ *fp8.Tensor) error {
			mb.WeightCopy(1)
			return nil
		}
	})
	refused(batchctx.ErrContribution, "a stage omits the contribution to a gradient", func(n *network) {
		n.stages[1] = &noGradient{n.linear}
	})

	// A scale cannot outlive its data, because it shares their buffer: a quantized matrix has one
	// buffer, and a tensor has one for each half.
	require.Equal(t, 1, buffersIn(reflect.TypeFor[kernels.Quantized]()))
	require.Equal(t, 2, buffersIn(reflect.TypeFor[fp8.Tensor]()))
	// A state does not grow with the number of steps, and a slab is one buffer.
	state, err := fp8.NewState(fp8.DelayedScaling{Format: fp8.Hybrid}, []fp8.Slot{{Name: "x"}})
	require.NoError(t, err)
	first, err := state.MarshalBinary()
	require.NoError(t, err)
	for range 1000 {
		_, err = state.End([]fp8.Tally{{Amax: 0x3f800000}})
		require.NoError(t, err)
	}
	last, err := state.MarshalBinary()
	require.NoError(t, err)
	require.Len(t, last, len(first))
	require.Equal(t, 1, buffersIn(reflect.TypeFor[fp8.Slab]()))
}

// noGradient is a stage that omits its parameter's gradient.
type noGradient struct{ *linear }

func (s *noGradient) Backward(_ context.Context, mb microbatch, _, gradIn []buffer) error {
	x, err := fp8.Take(mb, 1, shape("input", rows, in), fp8.Columnwise)
	mb.Check(err)
	gradIn[0] = mb.Must(s.dev.Alloc(memory.ActGrad, kernels.Float32, rows*in))
	return errors.Join(s.dev.Zero(gradIn[0]), x.Release(mb))
}

// buffersIn counts the buffers of a type.
func buffersIn(t reflect.Type) (n int) {
	for i := range t.NumField() {
		if t.Field(i).Type == reflect.TypeFor[buffer]() {
			n++
		}
	}
	return n
}

// TestTablesAnchorNothing allocates long-lived tables between steps. They are on pages of a separate
// scope, so all pages of the steps are returned to the system.
func TestTablesAnchorNothing(t *testing.T) {
	n := newNetwork(t)
	r, err := runner.New(n.config())
	require.NoError(t, err)
	for range 8 {
		_, err = r.Step(t.Context(), 4, n)
		require.NoError(t, err)
		_, err = n.dev.AllocIn(memory.Metadata, kernels.Float32, 16)
		require.NoError(t, err)
	}
	require.NoError(t, n.dev.ReleasePages(nil, memory.StepScope, memory.Gradients))
	for _, scope := range []memory.Scope{memory.StepScope, memory.Gradients} {
		stats := n.dev.Scope(scope)
		require.Zero(t, stats.Live+stats.Reserved, "%v", scope)
		require.LessOrEqual(t, stats.Pages, int64(0), "%v", scope)
	}
	require.Equal(t, int64(8*64), n.dev.Scope(memory.Metadata).Live)
	require.NoError(t, n.dev.RestorePages(nil))
	require.NoError(t, r.Close())
}

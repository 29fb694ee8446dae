package runner_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/stages"
)

// The excess of a step includes the tolerated leaks before it, and a record names the call after which the excess grew.
func TestToleratedLeaksAddUp(t *testing.T) { // L6, L7
	chain := chain()
	cfg := config(chain)
	cfg.Memory.TolerateLeaks = true
	cfg.Stages[1] = &stages.Func[number]{
		Declares: chain[1].Spec(), Parameters: chain[1].Params(), BackwardFunc: chain[1].Backward,
		ForwardFunc: func(ctx context.Context, mb view, in, out []number) error {
			if mb.Index() == 1 {
				mb.Retain(in[0])
			}
			return chain[1].Forward(ctx, mb, in, out)
		},
	}
	r := newRunner(t, cfg)
	for step := range int64(3) {
		result, err := r.Step(t.Context(), 3, &counted{})
		require.NoError(t, err)
		require.EqualValues(t, 8, result.Excess, "of the step alone")
		require.NoError(t, result.Update(func(float64) error { return nil }))
		samples := r.Samples(0)
		for m, leaked := range []int64{0, 8, 8} {
			s := samples.At(samples.Len() - 3 + m)
			require.Equal(t, step*8+leaked, s.Excess, "step %d, microbatch %d", step, m)
			if m != 1 {
				require.Zero(t, s.Growth)
				require.Zero(t, s.Leak)
				continue
			}
			require.EqualValues(t, 8, s.Growth)
			require.Equal(t, memory.Leak{Stage: 1, Name: chain[1].Spec().Name, Call: "B", Class: memory.Activation}, s.Leak)
		}
	}
}

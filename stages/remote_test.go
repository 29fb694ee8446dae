package stages_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/stages"
)

func TestRemoteDeclaresAndRefuses(t *testing.T) {
	spec := stages.Spec{Name: "far", Slots: []string{"x", "carry"}, Recomputes: true}
	params := []batchctx.Use[*float64]{{Name: "w"}}
	for _, splits := range []bool{false, true} {
		far := stages.Remote(spec, splits, params)
		require.Equal(t, spec, far.Spec())
		require.Equal(t, params, stages.Params(far))
		require.ErrorIs(t, far.Forward(t.Context(), batchctx.Microbatch[*float64]{}, nil, nil), stages.ErrRemote)
		require.ErrorContains(t, far.Backward(t.Context(), batchctx.Microbatch[*float64]{}, nil, nil), `Backward of "far"`)
		split, ok := far.(stages.SplitBackward[*float64])
		require.Equal(t, splits, ok)
		if splits {
			require.ErrorIs(t, split.BackwardInput(t.Context(), batchctx.Microbatch[*float64]{}, nil, nil), stages.ErrRemote)
			require.ErrorIs(t, split.BackwardWeight(t.Context(), batchctx.Microbatch[*float64]{}), stages.ErrRemote)
		}
	}
}

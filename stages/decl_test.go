package stages_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/stages"
)

// TestDecl declares one of everything: keys count from 1, separately for each kind.
func TestDecl(t *testing.T) {
	var d stages.Decl[int]
	d.Inputs("x", "mask")
	d.Outputs("y")
	d.Outputs("mask")
	d.NoGrad("mask")
	require.Equal(t, []batchctx.Part{1, 2}, []batchctx.Part{d.Part("tokens"), d.Part("labels", batchctx.AtForward, batchctx.AtWeight)})
	require.Equal(t, []batchctx.Slot{1, 2}, []batchctx.Slot{d.Slot("a"), d.Slot("b")})
	require.Equal(t, []batchctx.Loss{1, 2}, []batchctx.Loss{d.Loss("error"), d.Loss("metric")})
	require.Equal(t, []batchctx.Param{1, 2}, []batchctx.Param{d.Param("w", 7), d.Use(batchctx.Use[int]{Name: "e", Grad: 8, Contributes: batchctx.Sometimes})})
	require.Equal(t, []batchctx.Copy{1, 2}, []batchctx.Copy{d.WeightCopy("w", batchctx.AtForward), d.WeightCopy("e", batchctx.AtBackward)})
	calls := 0
	call := func(context.Context, batchctx.Microbatch[int], []int, []int) error { calls++; return nil }
	whole := d.Stage("whole", call, call)
	want := stages.Spec{
		Name:   "whole",
		Inputs: []stages.Port{{Name: "x"}, {Name: "mask", NoGrad: true}}, Outputs: []stages.Port{{Name: "y"}, {Name: "mask", NoGrad: true}},
		Reads: []stages.Read{{Part: "tokens"}, {Part: "labels", At: batchctx.AtForward | batchctx.AtWeight}},
		Slots: []string{"a", "b"}, Consumers: []batchctx.Consumer{batchctx.ByBackward, batchctx.ByBackward}, Losses: []string{"error", "metric"},
		WeightCopies: []batchctx.WeightCopy{{Name: "w", At: batchctx.AtForward}, {Name: "e", At: batchctx.AtBackward}},
	}
	require.Equal(t, want, whole.Spec())
	uses := []batchctx.Use[int]{{Name: "w", Grad: 7}, {Name: "e", Grad: 8, Contributes: batchctx.Sometimes}}
	require.Equal(t, uses, stages.Params(whole))
	_, splits := whole.(stages.SplitBackward[int])
	require.False(t, splits)

	type embedding struct{ stages.Decl[int] }
	embedded := &embedding{d}
	require.Equal(t, want, embedded.Spec())
	require.Equal(t, uses, embedded.Params())

	split := d.Split("split", call, call, call, func(context.Context, batchctx.Microbatch[int]) error { calls++; return nil })
	want.Name = "split"
	require.Equal(t, want, split.Spec())
	var mb batchctx.Microbatch[int]
	apart := split.(stages.SplitBackward[int])
	require.NoError(t, split.Forward(t.Context(), mb, nil, nil))
	require.NoError(t, split.Backward(t.Context(), mb, nil, nil))
	require.NoError(t, apart.BackwardInput(t.Context(), mb, nil, nil))
	require.NoError(t, apart.BackwardWeight(t.Context(), mb))
	require.Equal(t, 4, calls)
}

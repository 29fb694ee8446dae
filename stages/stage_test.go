package stages_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/stages"
)

func TestSpecValidate(t *testing.T) {
	valid := stages.Spec{
		Name: "s", Inputs: make([]stages.Port, stages.MaxPorts), Outputs: wire, Slots: []string{"x", "mask", "carry"},
		Reads: []stages.Read{{Part: "tokens"}}, Losses: []string{"loss"},
	}
	require.NoError(t, valid.Validate())

	all := stages.Spec{
		Inputs: make([]stages.Port, stages.MaxPorts+1), Slots: []string{"x", ""},
		Reads: []stages.Read{{Part: "tokens"}, {}}, Losses: []string{"", "loss"},
	}
	err := all.Validate()
	require.Error(t, err)
	for _, fault := range []string{"no name", "65 inputs and 0 outputs", "slot 1 has no name", "read 1", "loss 0"} {
		require.ErrorContains(t, err, fault)
	}
	require.Len(t, strings.Split(err.Error(), "\n"), 5)
}

func TestJoins(t *testing.T) {
	spec := func(name string, in, out []stages.Port) *stages.Spec {
		return &stages.Spec{Name: name, Inputs: in, Outputs: out}
	}
	from := spec("from", nil, wire)
	require.NoError(t, stages.Joins(from, spec("to", wire, nil)))
	require.NoError(t, stages.Joins(spec("from", nil, nil), spec("to", nil, nil)))

	err := stages.Joins(from, spec("to", wire[:1], nil))
	require.ErrorContains(t, err, `"from" returns 2 tensors, but "to" takes 1`)

	err = stages.Joins(from, spec("to", []stages.Port{{Name: "x", NoGrad: true}, {Name: "mask", NoGrad: true}}, nil))
	require.ErrorContains(t, err, "output 0")
	require.ErrorContains(t, err, "output 1")
	require.ErrorContains(t, err, "mask")
}

func TestFunc(t *testing.T) {
	declares := stages.Spec{Name: "f", Slots: []string{"x", "carry"}}
	params := []batchctx.Use[int]{{Name: "w", Grad: 7}}
	fault := errors.New("fault")
	f := &stages.Func[int]{
		Declares: declares, Parameters: params,
		ForwardFunc: func(_ context.Context, _ batchctx.Microbatch[int], in, out []int) error {
			out[0] = in[0] + 1
			return nil
		},
	}
	require.Equal(t, declares, f.Spec())
	require.Equal(t, params, stages.Params[int](f))
	out := []int{0}
	require.NoError(t, f.Forward(t.Context(), batchctx.Microbatch[int]{}, []int{4}, out))
	require.Equal(t, []int{5}, out)
	gradIn := []int{0}
	require.NoError(t, f.Backward(t.Context(), batchctx.Microbatch[int]{}, []int{1}, gradIn))
	require.Equal(t, []int{0}, gradIn)
	f.BackwardFunc = func(context.Context, batchctx.Microbatch[int], []int, []int) error { return fault }
	require.ErrorIs(t, f.Backward(t.Context(), batchctx.Microbatch[int]{}, nil, nil), fault)
}

// described is a stage that implements a descriptive interface.
type described struct{ stage }

func (described) Describe() string { return "a description" }

type describer interface{ Describe() string }

// wrapper is a decorator that implements no optional interface.
type wrapper struct{ inner stage }

func (w wrapper) Unwrap() stage { return w.inner }

func (w wrapper) Spec() stages.Spec { return w.inner.Spec() }

func (w wrapper) Forward(ctx context.Context, mb view, in, out []handle) error {
	return w.inner.Forward(ctx, mb, in, out)
}

func (w wrapper) Backward(ctx context.Context, mb view, gradOut, gradIn []handle) error {
	return w.inner.Backward(ctx, mb, gradOut, gradIn)
}

func TestAs(t *testing.T) {
	b := newBench(t)
	a := b.scale("a", 1)
	for name, s := range map[string]stage{
		"itself": described{a}, "recompute": stages.Recompute[handle](described{a}),
		"freeze": stages.Freeze[handle](described{a}), "wrapper": wrapper{described{a}},
		"all": wrapper{stages.Recompute(stages.Freeze[handle](wrapper{described{a}}))},
	} {
		d, ok := stages.As[describer](s)
		require.True(t, ok, name)
		require.Equal(t, "a description", d.Describe(), name)
	}
	_, ok := stages.As[describer](stage(wrapper{a}))
	require.False(t, ok)
	_, ok = stages.As[describer](sequential(t, "s", described{a}))
	require.False(t, ok, "a description of one stage of many describes none")
	_, ok = stages.As[describer, handle](nil)
	require.False(t, ok)

	require.Equal(t, a.Params(), stages.Params[handle](wrapper{stages.Recompute[handle](a)}))
	require.Empty(t, stages.Params(b.top()))
	frozen := stages.Params(wrapper{stages.Freeze[handle](a)}.Unwrap())
	require.Equal(t, batchctx.Frozen, frozen[0].Contributes, "the outermost answer counts")
}

func TestSplitBackwardThroughDecorators(t *testing.T) {
	b := newBench(t)
	splits, whole := stage(splitScale{b.scale("a", 1)}), stage(b.scale("b", 1))
	for name, test := range map[string]struct {
		stage stage
		want  bool
	}{
		"whole":              {whole, false},
		"splits":             {splits, true},
		"recompute":          {stages.Recompute(splits), true},
		"recompute of whole": {stages.Recompute(whole), false},
		"sequential":         {sequential(t, "s", splits, stages.Recompute(splits)), true},
		"sequential of both": {sequential(t, "s", splits, whole), false},
		"nested":             {stages.Recompute(sequential(t, "s", splits, sequential(t, "i", splits))), true},
		"freeze":             {stages.Freeze(splits), false},
		"wrapper":            {wrapper{splits}, false},
	} {
		_, ok := test.stage.(stages.SplitBackward[handle])
		require.Equal(t, test.want, ok, name)
	}
}

// TestDecl declares something of every kind: keys count from 1, separately for each kind.
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

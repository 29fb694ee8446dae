package runner_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
	"github.com/weir-ml/weir/transport"
)

// failing is the last stage of a chain, which runs a function in its forward and one in its
// backward.
type failing struct {
	*times
	do func(mb view)
}

func (f *failing) Forward(ctx context.Context, mb view, in, out []number) error {
	if err := f.times.Forward(ctx, mb, in, out); err != nil {
		return err
	}
	f.do(mb)
	return nil
}

// TestACallThatFailsEndsTheStep checks that the step returns the error and releases everything,
// even if the stage swallows the error, and that the next step works (L8).
func TestACallThatFailsEndsTheStep(t *testing.T) {
	planted := errors.New("planted")
	swallow := func(f func()) {
		defer func() { _ = recover() }()
		f()
	}
	for name, test := range map[string]struct {
		do     func(mb view)
		want   error
		panics string
	}{
		"it returns":               {do: func(mb view) { mb.Take(1) }, want: batchctx.ErrMisplaced},
		"key 0":                    {do: func(mb view) { mb.Save(0, num(1)) }, want: batchctx.ErrUndeclared},
		"Check":                    {do: func(mb view) { mb.Check(nil); mb.Check(planted) }, want: planted},
		"Must":                     {do: func(mb view) { mb.Must(nil, planted) }, want: planted},
		"it is swallowed":          {do: func(mb view) { swallow(func() { mb.Check(planted) }) }, want: planted},
		"the first failure wins":   {do: func(mb view) { defer mb.Release(nil); mb.Check(planted) }, want: planted},
		"it goes on after it":      {do: func(mb view) { swallow(func() { mb.Check(planted) }); mb.Retain(num(1)) }, want: planted},
		"another error after it":   {do: func(mb view) { swallow(func() { mb.Check(planted) }); mb.Check(errors.New("other")) }, want: planted},
		"a release of nothing":     {do: func(mb view) { mb.Release(nil) }, want: memory.ErrNone},
		"a panic of its own":       {do: func(view) { panic("its own") }, panics: "its own"},
		"a panic of its own after": {do: func(mb view) { swallow(func() { mb.Check(planted) }); panic("its own") }, panics: "its own"},
		"Abandon never fails":      {do: func(mb view) { mb.ReleaseAfterFailure(nil, false); mb.ReleaseAfterFailure(nil, true) }},
		"what is deferred runs": {do: func(mb view) {
			h := num(1)
			defer mb.Release(h)
			scope := mb.Access()
			defer mb.SetAccess(scope)
			mb.Check(planted)
		}, want: planted},
	} {
		t.Run(name, func(t *testing.T) {
			chain := chain()
			cfg := config(chain)
			space := memory.NewGCSpace[number](nil, func(number) int64 { return 8 })
			last := &failing{chain[2], test.do}
			cfg.Spaces[0], cfg.Stages[2] = space, last
			r := newRunner(t, cfg)
			step := func() error { _, err := r.Step(t.Context(), 3, &counted{}); return err }
			if test.panics != "" {
				require.PanicsWithValue(t, test.panics, func() { _ = step() })
			} else {
				err := step()
				require.ErrorIs(t, err, test.want)
				if placed := (*transport.StepError)(nil); test.want != nil && (!errors.As(err, &placed) || placed.Action.Stage() != 2) {
					t.Errorf("without its location: %v", err)
				}
			}
			require.Zero(t, space.Len())
			last.do = func(view) {}
			require.NoError(t, step())
		})
	}
}

// TestTheLeastConfiguration has stages and a space only: parts and losses come from the stages'
// declarations, and the space does the arithmetic on gradients.
func TestTheLeastConfiguration(t *testing.T) {
	full := config(chain())
	want, err := newRunner(t, full).Step(t.Context(), 3, &counted{})
	require.NoError(t, err)
	space := struct {
		memory.Space[number]
		calculator
	}{Space: full.Spaces[0]}
	got, err := newRunner(t, runner.Config[number]{Stages: config(chain()).Stages, Spaces: runner.Spaces(space)}).Step(t.Context(), 3, &counted{})
	require.NoError(t, err)
	require.Equal(t, want.Losses, got.Losses)
	require.Equal(t, want.GradNorm, got.GradNorm)

	several := config(chain())
	several.Stages[1] = &seeing{chain()[1]}
	several.Losses = nil
	_, err = runner.New(several)
	require.ErrorContains(t, err, `records loss "loss", which Losses does not contain: list all losses that stages record, and mark the objective`)
}

// TestAStageThatAdds checks that a gradient is zero before its first contribution.
func TestAStageThatAdds(t *testing.T) { // L5
	grad := num(1e9)
	stage := &stages.Func[number]{
		Declares:    stages.Spec{Name: "adds", Losses: []string{"loss"}},
		Parameters:  []batchctx.Use[number]{{Name: "w", Grad: grad}},
		ForwardFunc: func(_ context.Context, mb view, _, _ []number) error { mb.Loss(1, 1, 1); return nil },
		BackwardFunc: func(_ context.Context, mb view, _, _ []number) error {
			g, _ := mb.Grad(1)
			*g += float64(mb.LossSeed(1))
			return nil
		},
	}
	cfg := config(nil)
	cfg.Stages = []stages.Stage[number]{stage}
	none := runner.Indexed(func(context.Context, batchctx.Entry[number]) error { return nil })
	r := newRunner(t, cfg)
	for range 2 {
		runStep(t, r, 5, none)
		require.Equal(t, 5.0, *grad)
	}
}

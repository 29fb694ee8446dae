package runner_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages"
)

func TestViewsEndWithTheirCall(t *testing.T) {
	for name, rule := range map[string]schedule.Rule{"B": schedule.DepthFirst, "I and W": split} {
		t.Run(name, func(t *testing.T) {
			chain := chain()
			cfg := config(chain)
			cfg.Plan.Rule = rule
			var all []*splitting
			for i := range chain {
				all = append(all, &splitting{times: chain[i]})
				cfg.Stages[i] = all[i]
			}
			r := newRunner(t, cfg)
			runStep(t, r, 2, &counted{})
			for _, s := range all {
				require.NotEmpty(t, s.kept)
				for _, kept := range s.kept {
					func() {
						defer func() { require.ErrorIs(t, recover().(error), batchctx.ErrEnded) }()
						kept.Take(1)
					}()
				}
				s.kept = nil
			}
			// In a step, a failure at a later action that uses it ends the step.
			actions := 0
			cfg.Hooks.Action = func(int, schedule.Action) {
				if actions++; actions > 1 {
					all[0].kept[0].Take(1)
				}
			}
			_, err := newRunner(t, cfg).Step(t.Context(), 2, &counted{})
			require.ErrorIs(t, err, batchctx.ErrEnded)
			require.Equal(t, 2, actions)
		})
	}
}

func TestTrainingNeedsAnObjective(t *testing.T) { // L10
	chain := chain()
	cfg := config(chain)
	cfg.Losses = []loss.Def{{Name: "loss", Metric: true}}
	r := newRunner(t, cfg)
	_, err := r.Step(t.Context(), 1, &counted{})
	require.ErrorIs(t, err, runner.ErrNoObjective)
	evaluate(t, r, 1, &counted{})
	for _, s := range chain {
		s.param, s.metric = "", s.last
	}
	result, err := newRunner(t, cfg).Step(t.Context(), 1, &counted{})
	require.NoError(t, err, "without training there is nothing to divide")
	require.Equal(t, loss.Stepped, result.Outcome)
	_, err = factorOf(result)
	require.ErrorIs(t, err, runner.ErrNoUpdate)
}

func TestFailedIsToldWhileEverythingIsThere(t *testing.T) {
	cfg := config(chain())
	cause := errors.New("enough")
	var told error
	var names []string
	cfg.Hooks.Failed = func(_ int, err error, held iter.Seq[memory.Info]) {
		told = err
		for info := range held {
			names = append(names, info.Name)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cfg.Hooks.Action = func(_ int, a schedule.Action) {
		if a.WithDrop(0) == schedule.NewAction(schedule.F, 1, 0) {
			cancel(cause)
		}
	}
	r := newRunner(t, cfg)
	_, err := r.Step(ctx, 2, &counted{})
	require.ErrorIs(t, err, cause)
	require.Equal(t, err, told)
	require.Equal(t, []string{
		"microbatch 0: stage 0 (two): slot \"x\"",
		"microbatch 0: stage 1 (three): slot \"x\"",
		"microbatch (before its forward): stage 2 (five): input 0",
	}, names)
}

func TestValidateReportsEveryFault(t *testing.T) {
	chain := chain()
	cfg := config(chain)
	cfg.Spaces, cfg.Gradients, cfg.Losses = nil, nil, []loss.Def{}
	cfg.Plan.LookAhead, cfg.Memory.Ring, cfg.ScaleExponent = -1, -1, 1000
	cfg.Stages[0], cfg.Stages[1] = cfg.Stages[1], nil
	_, err := runner.New(cfg)
	for _, want := range []string{
		"there are no Spaces", "Plan.LookAhead is -1", "Memory.Ring is -1", "ScaleExponent is 1000", "stage 1 is nil",
		`records loss "loss"`, "takes 1 inputs",
	} {
		require.ErrorContains(t, err, want)
	}
	_, err = runner.New(runner.Config[number]{Spaces: config(nil).Spaces})
	require.ErrorContains(t, err, "no stages")

	cfg = config(chain)
	cfg.Stages[1] = halfFrozen{cfg.Stages[1].(*times)}
	_, err = runner.New(cfg)
	require.ErrorContains(t, err, `is frozen but its parameter "b" is not`)

	cfg = config(chain)
	cfg.Stages = append(cfg.Stages[:1], cfg.Stages[2:]...)
	cfg.Stages[1] = &stages.Func[number]{Declares: stages.Spec{Name: "odd", Inputs: []stages.Port{{Name: "y"}}}}
	_, err = runner.New(cfg)
	require.ErrorContains(t, err, `output 0 of "two"`)
}

type halfFrozen struct{ *times }

func (s halfFrozen) Spec() stages.Spec {
	spec := s.times.Spec()
	spec.Frozen = true
	return spec
}

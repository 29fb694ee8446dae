package runner_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
)

// around puts actions before and behind what a rule makes, on every rank for its
// stages.
func around(rule schedule.Rule, before, behind []schedule.Kind) schedule.Rule {
	return func(p schedule.Params) (*schedule.Plan, error) {
		plan, err := rule(p)
		if err != nil {
			return nil, err
		}
		changed := *plan
		changed.Programs = nil
		for rank, program := range plan.Programs {
			of := func(kinds []schedule.Kind) schedule.Segment {
				var body []schedule.Action
				for _, kind := range kinds {
					for _, stage := range p.Placement.On(rank) {
						body = append(body, schedule.Act(kind, stage, 0))
					}
				}
				return schedule.Segment{Body: body, Repeat: 1}
			}
			segments := slices.Concat([]schedule.Segment{of(before)}, program, []schedule.Segment{of(behind)})
			changed.Programs = append(changed.Programs, slices.DeleteFunc(segments, func(s schedule.Segment) bool { return len(s.Body) == 0 }))
		}
		return &changed, nil
	}
}

// TestGradientsAreReduced has three replicas, each with twice the gradient of the one
// before, and a stage that never writes its own.
func TestGradientsAreReduced(t *testing.T) { // L5
	r := chained(3)
	r.rule = around(schedule.OneFOneB, nil, []schedule.Kind{schedule.ReduceGrad})
	rows := rowsOf(r.placement)
	rows[1].contributes = batchctx.Sometimes
	r.change = func(cfg *runner.Config[number]) {
		cfg.Stages[1] = withoutGrad{rows[1]}
		cfg.Replicas.Reduce = func(_ context.Context, stage int) error {
			*rows[stage].grad = 7**rows[stage].grad + 1
			return nil
		}
	}
	g := r.group(t, rows)
	result, err := g.Step(t.Context(), 4, r.sources())
	require.NoError(t, err)
	require.Equal(t, 4, result.Microbatches)
	want := alone(t, 3, 4)
	require.Equal(t, 7*want.grads["w0"]+1, *rows[0].grad)
	require.Equal(t, 1.0, *rows[1].grad, "zero before it is reduced, and what came from others stays")
	require.Equal(t, 7*want.grads["w2"]+1, *rows[2].grad)

	r.change = func(cfg *runner.Config[number]) { cfg.Stages[1] = withoutGrad{rows[1]} }
	_, err = r.group(t, rows).Step(t.Context(), 4, r.sources())
	require.ErrorContains(t, err, "Replicas.Reduce is nil")
}

// TestGatheredWeightsAreTheSteps gathers and reshards: the books count the weights in
// between, and every way out ends them (L6, L8).
func TestGatheredWeightsAreTheSteps(t *testing.T) {
	r := chained(2)
	r.rule = around(schedule.OneFOneB, []schedule.Kind{schedule.Unshard}, []schedule.Kind{schedule.Reshard})
	rows := rowsOf(r.placement)
	var fails error
	keeps := false
	resharded := []int{0, 0}
	r.change = func(cfg *runner.Config[number]) {
		cfg.Replicas.Unshard = func(_ context.Context, stage int) ([]number, error) {
			weights := []number{num(gatheredWeight), num(gatheredWeight)}
			if keeps {
				require.NoError(t, r.spaces[stage].Retain(weights[1]))
			}
			if stage == 1 && fails != nil {
				return nil, fails
			}
			return weights, nil
		}
		cfg.Replicas.Reshard = func(stage int) { resharded[stage]++ }
		cfg.Hooks.Microbatch = func(s *memory.Sample) {
			if s.Microbatch == 0 && s.Classes[memory.Unsharded] != 16 {
				t.Errorf("rank %d: %d bytes of gathered weights at microbatch %d", s.Rank, s.Classes[memory.Unsharded], s.Microbatch)
			}
		}
	}
	g := r.group(t, rows)
	for range 2 {
		_, err := g.Step(t.Context(), 4, r.sources())
		require.NoError(t, err)
		r.released(t)
	}
	require.Equal(t, []int{2, 2}, resharded)

	fails = errors.New("planted")
	_, err := g.Step(t.Context(), 4, r.sources())
	require.ErrorIs(t, err, fails)
	require.ErrorContains(t, err, "rank 1 action 1UNSHARD")
	r.released(t)

	fails, keeps = nil, true
	_, err = g.Step(t.Context(), 4, r.sources())
	var leak *batchctx.LeakError
	require.True(t, errors.As(err, &leak), "%v", err)
	require.Contains(t, leak.What, "its gathered weights were released with this action")
	keeps = false
	_, err = g.Step(t.Context(), 4, r.sources())
	require.NoError(t, err)

	r.rule = around(schedule.OneFOneB, []schedule.Kind{schedule.Unshard, schedule.Unshard}, []schedule.Kind{schedule.Reshard})
	r.change = func(cfg *runner.Config[number]) {}
	_, err = r.group(t, rows).Step(t.Context(), 4, r.sources())
	require.Error(t, err)
}

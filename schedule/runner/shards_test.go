package runner_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
)

// around adds actions before and after a rule's program, on every rank for its stages.
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

// TestGradientsAreReduced has three replicas, each with twice the gradient of its predecessor,
// and a stage that never writes its gradient.
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
	require.Equal(t, 1.0, *rows[1].grad, "zero before it is reduced, and the sum of the others after")
	require.Equal(t, 7*want.grads["w2"]+1, *rows[2].grad)

	r.change = func(cfg *runner.Config[number]) { cfg.Stages[1] = withoutGrad{rows[1]} }
	_, err = r.group(t, rows).Step(t.Context(), 4, r.sources())
	require.ErrorContains(t, err, "Replicas.Reduce is nil")
}

// TestGatheredWeightsAreTheSteps gathers and reshards: the books count the weights in between,
// and they are released on every path (L6, L8).
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

// replicas connects two replicas in this process.
type replicas struct {
	gradients [2]map[int]chan float64 // from a replica to the other one, by stage
	records   [2]map[int]chan []byte  // the same, by rank
}

func newReplicas(p schedule.Placement) *replicas {
	var r replicas
	for i := range 2 {
		r.gradients[i], r.records[i] = map[int]chan float64{}, map[int]chan []byte{}
		for stage, rank := range p.Rank {
			r.gradients[i][stage], r.records[i][rank] = make(chan float64, 1), make(chan []byte, 1)
		}
	}
	return &r
}

// of returns the hooks of a replica that trains the rows.
func (r *replicas) of(replica int, rows []*times) runner.Replicas[number] {
	return runner.Replicas[number]{
		Replica: replica, Of: 2,
		Reduce: func(ctx context.Context, stage int) error {
			r.gradients[replica][stage] <- *rows[stage].grad
			select {
			case other := <-r.gradients[1-replica][stage]:
				*rows[stage].grad += other
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		},
		Merge: func(_ context.Context, rank int, record *loss.Record) error {
			own, err := record.AppendBinary(nil)
			if err != nil {
				return err
			}
			r.records[replica][rank] <- own
			var other loss.Record
			if err := other.UnmarshalBinary(<-r.records[1-replica][rank]); err != nil {
				return err
			}
			return record.Merge(&other)
		},
	}
}

// TestTwoReplicasAreOneBigBatch trains two replicas in this process, under every named schedule,
// and one trainer on the microbatches of both.
func TestTwoReplicasAreOneBigBatch(t *testing.T) {
	const m, steps = 6, 3
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			place, err := s.Place(2, 2*s.PerRank)
			require.NoError(t, err)
			train := func(replica, of int, hooks func(rows []*times) runner.Replicas[number]) ([]*times, *runner.Result) {
				rows := rowsOf(place)
				global := func(i int) float64 { return float64(i*of + replica) } // the number among all microbatches
				rig := ranksOf{placement: place, capacity: 1, split: s.Split, change: func(cfg *runner.Config[number]) {
					cfg.Schedule, cfg.Plan.Rule, cfg.Plan.Placement = s.Name, nil, schedule.Placement{}
					cfg.Replicas = hooks(rows)
				}}
				for _, row := range rows {
					row.lossWeight = func(i int) float64 { return 1 + global(i) }
				}
				run := rig.group(t, rows)
				source := runner.Indexed(func(_ context.Context, e batchctx.Entry[number]) error {
					e.Put("x", num(1+global(e.Index())))
					return nil
				})
				var result *runner.Result
				for range steps {
					step, err := run.Step(t.Context(), 2*m/of, source)
					require.NoError(t, err)
					result = step
					require.NoError(t, result.Update(func(factor float64) error {
						for _, row := range rows {
							row.weight -= 0.01 * factor * *row.grad
						}
						return nil
					}))
				}
				return rows, result
			}
			alone, want := train(0, 1, func([]*times) runner.Replicas[number] { return runner.Replicas[number]{} })
			var both [2][]*times
			var results [2]*runner.Result
			meeting := newReplicas(place)
			var running sync.WaitGroup
			for replica := range both {
				running.Go(func() {
					both[replica], results[replica] = train(replica, 2, func(rows []*times) runner.Replicas[number] { return meeting.of(replica, rows) })
				})
			}
			running.Wait()
			for replica, rows := range both {
				require.InEpsilon(t, want.Loss("loss"), results[replica].Loss("loss"), 1e-12)
				require.InEpsilon(t, want.GradNorm, results[replica].GradNorm, 1e-12)
				for i, row := range rows {
					require.InEpsilon(t, alone[i].weight, row.weight, 1e-12, "%s of replica %d", row.name, replica)
				}
			}
		})
	}
}

// TestReplicasWithoutHooks has replicas that would silently train separately, and hooks that no
// plan calls.
func TestReplicasWithoutHooks(t *testing.T) {
	merge := func(context.Context, int, *loss.Record) error { return nil }
	reduce := func(context.Context, int) error { return nil }
	unshard := func(context.Context, int) ([]number, error) { return nil, nil }
	for name, tc := range map[string]struct {
		change func(cfg *runner.Config[number])
		says   []string
	}{
		"no hook": {func(cfg *runner.Config[number]) { cfg.Replicas.Of = 2 }, []string{"Replicas.Of is 2 and Merge is nil", "Replicas.Of is 2 and Reduce is nil"}},
		"no Merge": {func(cfg *runner.Config[number]) { cfg.Replicas = runner.Replicas[number]{Of: 2, Reduce: reduce} },
			[]string{"Replicas.Of is 2 and Merge is nil"}},
		"no Reduce": {func(cfg *runner.Config[number]) { cfg.Replicas = runner.Replicas[number]{Of: 2, Merge: merge} },
			[]string{"Replicas.Of is 2 and Reduce is nil"}},
		"Unshard without a plan that gathers": {func(cfg *runner.Config[number]) { cfg.Replicas.Unshard = unshard },
			[]string{"Replicas.Unshard is set and the plan of depth-first gathers no weights"}},
		"Reshard alone": {func(cfg *runner.Config[number]) { cfg.Replicas.Reshard = func(int) {} }, []string{"Replicas.Reshard is set and Unshard is nil"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(chain())
			tc.change(&cfg)
			_, err := runner.New(cfg)
			for _, says := range tc.says {
				require.ErrorContains(t, err, says)
			}
		})
	}

	frozen := config(chain())
	for _, stage := range frozen.Stages {
		stage.(*times).contributes = batchctx.Frozen
	}
	frozen.Replicas.Of, frozen.Replicas.Merge = 2, merge
	require.NoError(t, frozen.Validate(), "there is nothing to reduce")

	gathers := config(chain())
	gathers.Replicas.Unshard, gathers.Plan.Rule = unshard, schedule.DepthFirst
	_, err := newRunner(t, gathers).Step(t.Context(), 3, &counted{})
	require.ErrorContains(t, err, "gathers no weights")

	some := config(chain())
	some.Replicas.Reduce = reduce
	some.Plan.Rule = func(p schedule.Params) (*schedule.Plan, error) {
		plan, err := schedule.DepthFirst(p)
		if err == nil {
			plan.Programs[0] = append(plan.Programs[0], schedule.Segment{Body: []schedule.Action{schedule.Act(schedule.ReduceGrad, 1, 0)}, Repeat: 1})
		}
		return plan, err
	}
	_, err = newRunner(t, some).Step(t.Context(), 3, &counted{})
	require.ErrorContains(t, err, "Rank 0 never runs 0REDUCE_GRAD; add it")
}

package virtual_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/stages"
)

var seed = flag.Uint64("seed", 1, "of the prices")

type calculator struct{}

func (calculator) Zero(g number) error                  { *g = 0; return nil }
func (calculator) Add(dst, src number) error            { *dst += *src; return nil }
func (calculator) SumSquares(g number) (float64, error) { return *g * *g, nil }
func (calculator) Copy(dst, src number) error           { *dst = *src; return nil }

// pipeline is a set of ranks whose stages sleep.
type pipeline struct {
	group    *runner.Runner[number]
	sleepers []*sleeper // by stage of the placement
	loads    []load     // by rank
	sources  []runner.Source[number]
	costs    *simulate.Costs
}

func newPipeline(t *testing.T, s *schedule.Schedule, place schedule.Placement, p *prices, capacity int) *pipeline {
	t.Helper()
	l := &pipeline{loads: make([]load, place.Ranks)}
	l.costs = &simulate.Costs{Unit: "ns", Each: func(a schedule.Action) int64 { return int64(p.action(a)) }}
	var list []stages.Stage[number]
	for row, rank := range place.Rank {
		stage := row % place.Depth()
		one := &sleeper{
			stage: stage, first: place.First(row), last: place.Last(row),
			weight: weight(stage), grad: num(math.NaN()), prices: p, load: &l.loads[rank],
		}
		l.sleepers, list = append(l.sleepers, one), append(list, one)
		l.costs.Stages = append(l.costs.Stages, simulate.StageCosts{
			F: int64(p.of(stage, 0, schedule.F)), I: int64(p.of(stage, 0, schedule.I)), W: int64(p.of(stage, 0, schedule.W)), Saved: 1,
		})
	}
	if p.same { // the costs of the stages are sufficient
		l.costs.Each = nil
	}
	cfg := runner.Config[number]{
		Stages: list, Gradients: calculator{},
		Losses: []loss.Def{{Name: "loss", Reduction: loss.Mean, Objective: true}},
		Plan:   runner.Plan{Placement: place, Rule: s.Rule},
		Topology: runner.Topology[number]{
			Capacity: capacity, Stall: time.Hour,
			Copy: func(_, _ int, h number) (number, error) { return num(*h), nil },
		},
	}
	for range place.Ranks {
		cfg.Spaces = append(cfg.Spaces, memory.NewGCSpace(nil, func(number) int64 { return 8 }))
		next := 0
		l.sources = append(l.sources, runner.Indexed(func(_ context.Context, e batchctx.Entry[number]) error {
			if e.Index() != next {
				return io.ErrUnexpectedEOF
			}
			next++
			e.Put("x", num(input(e.Index())))
			return nil
		}))
	}
	var err error
	l.group, err = runner.New(cfg)
	require.NoError(t, err)
	return l
}

// TestEverySchedule runs every schedule on many ranks, with prices that differ by stage,
// microbatch and kind (Costs.Each), and with prices that differ only by stage and kind.
func TestEverySchedule(t *testing.T) {
	ranks := []int{1, 2, 3, 4, 5}
	if *testkit.Long {
		ranks = []int{1, 2, 3, 4, 5, 6, 7, 8, 16}
	}
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			for _, p := range ranks {
				place, err := s.Place(p, s.PerRank*p)
				require.NoError(t, err)
				ran := 0
				for _, m := range []int{1, 2, p - 1, p, 2*p + 1, 4 * p, 64} {
					if m < 1 || m == 64 && p < 4 && !*testkit.Long {
						continue
					}
					if _, err := s.Rule(schedule.Params{Placement: place, Microbatches: m}); err != nil {
						require.ErrorIs(t, err, schedule.ErrParams) // the rule does not support this M
						continue
					}
					ran++
					for _, capacity := range []int{0, 1, schedule.Unlimited} {
						for _, same := range []bool{true, false} {
							synctest.Test(t, func(t *testing.T) { run(t, &s, place, m, capacity, same) })
						}
					}
				}
				require.Positive(t, ran, "no number of microbatches works on %d ranks", p)
			}
		})
	}
}

// run trains one step and compares its times with those of the simulation, and its numbers with
// those of a plain loop.
func run(t *testing.T, s *schedule.Schedule, place schedule.Placement, m, capacity int, same bool) {
	what := fmt.Sprintf("%s, %d ranks, %d microbatches, capacity %d, same %v, seed %d", s.Name, place.Ranks, m, capacity, same, *seed)
	p := &prices{plan: &schedule.Plan{Placement: place, Microbatches: m}, seed: *seed, same: same, most: 20}
	l := newPipeline(t, s, place, p, capacity)
	result, err := l.group.Step(t.Context(), m, runner.PerRank(l.sources...))
	require.NoError(t, err, what)
	simulated, err := simulate.Run(result.Plan, l.costs, capacity)
	require.NoError(t, err, what)

	for rank, got := range result.Ranks {
		want := simulated.Ranks[rank]
		require.Equal(t, time.Duration(want.Last-want.First), got.End-got.Start, "rank %d, %s", rank, what)
		require.Equal(t, time.Duration(want.Wait), got.Wait, "rank %d: wait, %s", rank, what)
		require.Equal(t, got.End-got.Start, got.Work+got.Wait, "rank %d: work and wait, %s", rank, what)
		require.Equal(t, want.InFlight, l.loads[rank].most, "rank %d: in flight, %s", rank, what)
		require.Zero(t, l.loads[rank].now, "rank %d, %s", rank, what)
	}
	require.Equal(t, time.Duration(simulated.Makespan), result.Makespan, "makespan, %s", what)
	require.Equal(t, time.Duration(simulated.Span), result.Span, "span, %s", what)
	require.Equal(t, simulated.BubbleMakespan(), result.Bubble(), "bubble, %s", what)
	compareNumbers(t, s, place, m, l, result, what)
	require.NoError(t, l.group.Close())
}

// compareNumbers compares losses and gradients with those of a plain loop.
func compareNumbers(t *testing.T, s *schedule.Schedule, place schedule.Placement, m int, l *pipeline, result *runner.Result, what string) {
	sums, weights, grads := sequential(place.Depth(), m)
	var sum, total loss.Exact
	for mb := range sums {
		sum.Add(sums[mb])
		total.Add(weights[mb])
	}
	require.Equal(t, sum.Float64()/total.Float64(), result.Losses[0].Value, "loss, %s", what)
	for row, stage := range l.sleepers {
		if own := row - place.Depth(); own >= 0 && place.Rank[own] == place.Rank[row] {
			continue // the rank's first use has the total
		}
		want := grads[row%place.Depth()]
		if s.AscendingBackward {
			require.Equal(t, want, *stage.grad, "gradient of stage %d, %s", row, what)
		} else {
			require.InEpsilon(t, want, *stage.grad, 1e-12, "gradient of stage %d, %s", row, what)
		}
	}
}

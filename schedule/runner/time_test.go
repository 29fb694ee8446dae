package runner_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/simulate"
)

// sleeping is a stage whose calls take time.
type sleeping struct {
	*times
	f, b time.Duration
}

func (s sleeping) Forward(ctx context.Context, mb view, in, out []number) error {
	time.Sleep(s.f)
	return s.times.Forward(ctx, mb, in, out)
}

func (s sleeping) Backward(ctx context.Context, mb view, gradOut, gradIn []number) error {
	time.Sleep(s.b)
	return s.times.Backward(ctx, mb, gradOut, gradIn)
}

// TestTheMeasuredStepIsTheSimulatedOne uses virtual time: makespan, span, work, waits and bubble
// equal the simulation's.
func TestTheMeasuredStepIsTheSimulatedOne(t *testing.T) {
	for _, ranks := range []int{1, 2, 4} {
		for _, capacity := range []int{0, 1, schedule.Unlimited} {
			synctest.Test(t, func(t *testing.T) {
				costs := &simulate.Costs{Unit: "ns"}
				r := chained(ranks)
				r.capacity = capacity
				rows := rowsOf(r.placement)
				for s := range rows {
					f, b := int64(2+s%2)*int64(time.Second), int64(5-s%3)*int64(time.Second)
					costs.Stages = append(costs.Stages, simulate.StageCosts{F: f, B: b})
				}
				if ranks == 1 {
					rows[0].last, rows[0].first = true, true
				}
				r.change = func(cfg *runner.Config[number]) {
					for s, row := range rows {
						cfg.Stages[s] = sleeping{row, time.Duration(costs.Stages[s].F), time.Duration(costs.Stages[s].B)}
					}
				}
				result, err := r.group(t, rows).Step(t.Context(), 7, r.sources())
				require.NoError(t, err)
				want, err := simulate.Run(result.Plan, costs, capacity)
				require.NoError(t, err)
				require.EqualValues(t, want.Makespan, result.Makespan)
				require.EqualValues(t, want.Span, result.Span)
				require.Equal(t, want.BubbleMakespan(), result.Bubble())
				start := want.Ranks[0].First
				for rank, measured := range result.Ranks {
					simulated := want.Ranks[rank]
					require.EqualValues(t, simulated.First-start, measured.Start, "rank %d", rank)
					require.EqualValues(t, simulated.Last-start, measured.End, "rank %d", rank)
					require.EqualValues(t, simulated.Busy, measured.Work, "rank %d", rank)
					require.EqualValues(t, simulated.Wait, measured.Wait, "rank %d", rank)
				}
				require.Equal(t, ranks == 1, result.Bubble() == 0)
			})
		}
	}
}

// TestTheWaitForDataIsOfOneMicrobatch has a source that becomes slower with each microbatch.
func TestTheWaitForDataIsOfOneMicrobatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config(chain())
		var waits []time.Duration
		cfg.Hooks.Microbatch = func(s *memory.Sample) { waits = append(waits, time.Duration(s.WaitData)) }
		source := &counted{}
		_, err := newRunner(t, cfg).Step(t.Context(), 3, runner.Indexed(func(ctx context.Context, e batchctx.Entry[number]) error {
			time.Sleep(time.Duration(1+e.Index()) * time.Second)
			return source.Next(ctx, e)
		}))
		require.NoError(t, err)
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, waits)
	})
}

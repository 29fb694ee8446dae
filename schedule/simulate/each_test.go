package simulate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// The times of Each replace the times of stages, and a joined pair takes their sum. Run rejects times out
// of range.
func TestEachComputationHasItsTime(t *testing.T) {
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 3})
	require.NoError(t, err)
	costs := &simulate.Costs{Latency: 1, Stages: []simulate.StageCosts{{F: 99, I: 99, W: 99}}}
	costs.Each = func(a schedule.Action) int64 {
		require.Zero(t, a.Drop())
		require.False(t, a.Joined())
		if a.Kind() == schedule.F {
			return int64(1 + a.Microbatch())
		}
		return 10
	}
	var ends []int64
	report, err := simulate.Timeline(plan, costs, schedule.Unlimited, func(e simulate.TimedAction) {
		if e.Rank == 1 {
			ends = append(ends, e.End)
		}
	})
	require.NoError(t, err)
	// Rank 1 runs F of 1 from 2, B of 10, F of 2, and B. Rank 0 receives the first gradient at 14 and
	// sends its last output at 27, so rank 1 runs F of 3 from 28, and B.
	require.Equal(t, []int64{3, 13, 15, 25, 31, 41}, ends)
	require.EqualValues(t, 1+2+3+30, report.Ranks[1].Busy)

	pair, err := schedule.DualPipeV(schedule.Params{Placement: schedule.Wave(1, 2), Microbatches: 6})
	require.NoError(t, err)
	costs.Stages[0].Joined = 1 // ignored, because Each returns the times
	one, err := simulate.Run(pair, costs, schedule.Unlimited)
	require.NoError(t, err)
	require.Equal(t, one.Ideal, one.Makespan)

	for _, bad := range []int64{-1, 1 << 60} {
		costs.Each = func(schedule.Action) int64 { return bad }
		_, err = simulate.Run(plan, costs, schedule.Unlimited)
		require.ErrorIs(t, err, simulate.ErrCosts)
		require.ErrorContains(t, err, "it must be 0 to")
	}
}

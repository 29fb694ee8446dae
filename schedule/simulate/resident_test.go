package simulate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Resident bytes belong to stages, so each rank has the resident bytes of its stages.
func TestResidentFollowsThePlacement(t *testing.T) {
	costs := &simulate.Costs{Resident: []int64{5, 7}}
	for _, bytes := range []int64{1000, 200, 30, 4} {
		costs.Stages = append(costs.Stages, simulate.StageCosts{F: 1, I: 1, W: 1, Resident: bytes})
	}
	for _, c := range []struct {
		place schedule.Placement
		want  [2]int64
	}{
		{schedule.Looped(2, 4), [2]int64{1000 + 30 + 5, 200 + 4 + 7}},
		{schedule.Wave(2, 4), [2]int64{1000 + 4 + 5, 200 + 30 + 7}},
	} {
		plan, err := schedule.BreadthFirst(schedule.Params{Placement: c.place, Microbatches: 3})
		require.NoError(t, err)
		report, err := simulate.Run(plan, costs, schedule.Unlimited)
		require.NoError(t, err)
		for rank, want := range c.want {
			require.Equal(t, want, report.Ranks[rank].Peak)
			require.Equal(t, want, report.Ranks[rank].Classes[memory.Resident])
		}
	}
}

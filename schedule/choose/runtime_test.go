package choose_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// The receives of a plan for PyTorch are posted early enough: the plan takes at most 1 % longer than
// its computations with transfers that need no posting. It also does not deadlock if ranks wait at a
// rendezvous.
func TestPyTorchPostsInTime(t *testing.T) {
	costs := &simulate.Costs{Latency: 7, PerMiB: 300, Stages: []simulate.StageCosts{{F: 10, I: 12, W: 7, Saved: 1, Output: 10240, Gradient: 20480}}}
	choice, err := choose.Choose(choose.Request{Ranks: 4, Stages: 8, Microbatches: 12, Costs: costs, Capacity: 1, Runtime: schedule.PyTorch})
	require.NoError(t, err)
	proven := 0
	for _, c := range choice.All {
		if c.Report == nil {
			continue
		}
		proven++
		require.Equal(t, schedule.PyTorch, c.Plan.Runtime)
		require.NoError(t, check.Links(c.Plan, 0), c.Name())
		ideal, err := simulate.Run(lower.Computations(c.Plan), costs, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, c.Report.Makespan, ideal.Makespan+ideal.Makespan/100, c.Name())
		again, err := simulate.Run(c.Plan, costs, 5)
		require.NoError(t, err)
		require.Equal(t, c.Report, again, "the report depends on the capacity")
	}
	require.Greater(t, proven, 10)
}

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
	choice := chosen(t, choose.Request{Ranks: 4, Stages: 8, Microbatches: 12, Costs: costs, Capacity: 1, Runtime: schedule.PyTorch})
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

// TestPyTorchWaitsInTime requires that a rank waits for its sends soon after their messages were read: the
// number of sends that are not waited for does not depend on the number of microbatches.
func TestPyTorchWaitsInTime(t *testing.T) {
	costs := &simulate.Costs{Latency: 7, Stages: []simulate.StageCosts{{F: 10, I: 12, W: 7, Saved: 1, Output: 1, Gradient: 1}}}
	pending := map[int]map[string]int{}
	for _, microbatches := range []int{16, 32} {
		choice := chosen(t, choose.Request{Ranks: 4, Stages: 4, Microbatches: microbatches, Costs: costs, Capacity: 1, Runtime: schedule.PyTorch})
		pending[microbatches] = map[string]int{}
		for _, c := range choice.All {
			if name := c.Name(); c.Report != nil && (name == "1f1b" || name == "zb-h1") {
				pending[microbatches][name] = maxPending(c.Plan)
			}
		}
	}
	require.Len(t, pending[16], 2)
	require.Equal(t, pending[16], pending[32])
}

// maxPending returns the largest number of sends on a rank whose waits are still to come.
func maxPending(plan *schedule.Plan) (most int) {
	for rank := range plan.Programs {
		pending := 0
		for a := range plan.All(rank) {
			switch a.Kind() {
			case schedule.SendF, schedule.SendB:
				pending++
			case schedule.WaitF, schedule.WaitB:
				pending--
			}
			most = max(most, pending)
		}
	}
	return most
}

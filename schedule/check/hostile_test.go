package check_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/simulate"
)

// A few lines must not cost gigabytes: two ranks with bodies whose strides have no
// small common multiple.
func TestCheckOfCoprimeBodies(t *testing.T) {
	plan := &schedule.Plan{Name: "coprime", Mode: schedule.ForwardOnly, Placement: schedule.Looped(2, 2), Microbatches: 2896 * 2887}
	for rank, n := range []int{2896, 2887} {
		var body []schedule.Action
		for mb := range n {
			body = append(body, schedule.Act(schedule.F, rank, mb))
		}
		plan.Programs = append(plan.Programs, []schedule.Segment{{Body: body, Repeat: plan.Microbatches / n, Stride: n}})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, check.Plan(plan))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
}

// Costs at their limits on a plan without actions.
func TestSimulateOfNothing(t *testing.T) {
	plan := &schedule.Plan{Name: "empty", Placement: schedule.Looped(2, 2), Microbatches: 1, Programs: make([][]schedule.Segment, 2)}
	costs := &simulate.Costs{PerMiB: 1 << 48, Stages: []simulate.StageCosts{{Output: 1 << 48, Gradient: 1 << 48}}}
	_, err := simulate.Run(plan, costs, schedule.Unlimited)
	require.ErrorIs(t, err, simulate.ErrCosts)
}

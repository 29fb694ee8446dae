package check_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// A check of two ranks whose bodies have no small common multiple must not need gigabytes.
func TestCheckOfCoprimeBodies(t *testing.T) {
	plan := &schedule.Plan{Name: "coprime", Mode: schedule.ForwardOnly, Placement: schedule.Looped(2, 2), Microbatches: 2896 * 2887}
	for rank, n := range []int{2896, 2887} {
		var body []schedule.Action
		for mb := range n {
			body = append(body, schedule.NewAction(schedule.F, rank, mb))
		}
		plan.Programs = append(plan.Programs, []schedule.Segment{{Body: body, Repeat: plan.Microbatches / n, Stride: n}})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, check.Plan(plan))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
}

// A check of nested loops must not need gigabytes either, although one line of a loop expands to thousands of actions.
func TestCheckOfNestedBodies(t *testing.T) {
	plan := &schedule.Plan{Name: "nested", Mode: schedule.ForwardOnly, Placement: schedule.Looped(2, 2), Microbatches: 2896 * 2887}
	for rank, n := range []int{2896, 2887} {
		inner := []schedule.Segment{{Body: []schedule.Action{schedule.NewAction(schedule.F, rank, 0)}, Repeat: n, Stride: 1}}
		plan.Programs = append(plan.Programs, []schedule.Segment{{Inner: inner, Repeat: plan.Microbatches / n, Stride: n}})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, check.Plan(plan))
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))

	inner := plan.Programs[0][0].Inner
	for _, spoil := range []struct {
		fault string
		spoil func(s *schedule.Segment)
	}{
		{"Segment 0 of rank 0 has 1 actions", func(s *schedule.Segment) { s.Body = inner[0].Body }},
		{"Segment 0 of rank 0 has 0 actions", func(s *schedule.Segment) { s.Inner = nil }},
		{"Segment 0 of rank 0 has 0 actions", func(s *schedule.Segment) { s.Inner = []schedule.Segment{} }},
		{"contains segment 1 of 0 actions", func(s *schedule.Segment) { s.Inner = append(s.Inner[:1:1], *s) }},
		{"contains segment 0 of 1 actions, repeat 0", func(s *schedule.Segment) { s.Inner = []schedule.Segment{{Body: inner[0].Body}} }},
		{"nested loops to 33554433", func(s *schedule.Segment) {
			s.Inner = []schedule.Segment{{Body: inner[0].Body, Repeat: schedule.MaxNested + 1}}
		}},
	} {
		broken := *plan
		broken.Programs = [][]schedule.Segment{{plan.Programs[0][0]}, plan.Programs[1]}
		spoil.spoil(&broken.Programs[0][0])
		err := check.Plan(&broken)
		require.ErrorIs(t, err, check.ErrInvalidPlan)
		require.ErrorContains(t, err, spoil.fault)
	}
}

// A check of a plan with every other microbatch must not need gigabytes either, although each microbatch is a separate
// run.
func TestCheckOfScattered(t *testing.T) {
	plan := &schedule.Plan{Name: "scattered", Mode: schedule.ForwardOnly, Placement: schedule.Looped(1, 1), Microbatches: schedule.MaxMicrobatches, Programs: [][]schedule.Segment{
		{{Body: []schedule.Action{schedule.NewAction(schedule.F, 0, 0)}, Repeat: schedule.MaxMicrobatches / 2, Stride: 2}},
	}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.Contains(t, plantest.CodesOf(check.Plan(plan)), check.Unproved)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(256<<20))
}

// If thousands of ranks wait for a rank with a long nested loop, the check does not search that
// loop for each of them.
func TestCheckOfManyWaiting(t *testing.T) {
	const waiting, microbatches = 8_000, 8_000_000
	each := func(stage, from int) schedule.Segment {
		return schedule.Segment{Body: []schedule.Action{schedule.NewAction(schedule.F, stage, from)}, Repeat: microbatches - from, Stride: 1}
	}
	plan := &schedule.Plan{Name: "waiting", Mode: schedule.ForwardOnly, Placement: schedule.Placement{Ranks: waiting + 1}, Microbatches: microbatches}
	first := []schedule.Segment{{Body: []schedule.Action{schedule.NewAction(schedule.F, 2, 0)}, Repeat: 1}, {Inner: []schedule.Segment{each(0, 0)}, Repeat: 1}, each(2, 1)}
	for stage := 4; stage < 2*waiting; stage += 2 {
		first = append(first, each(stage, 0))
	}
	plan.Programs = append(plan.Programs, first)
	for rank := 1; rank <= waiting; rank++ {
		plan.Placement.Rank = append(plan.Placement.Rank, 0, rank)
		plan.Programs = append(plan.Programs, []schedule.Segment{each(2*rank-1, 0)})
	}
	require.ErrorContains(t, check.Plan(plan), "rank 0 is at action 0, 2F0, and waits for 1F0 of rank 1; rank 1 is at action 0")
}

// The simulation of a rank that runs far ahead of another one in nested loops must not need gigabytes either.
func TestSimulateOfNestedBodies(t *testing.T) {
	const m = 1 << 24
	plan := &schedule.Plan{Name: "ahead", Mode: schedule.ForwardOnly, Placement: schedule.Looped(2, 2), Microbatches: 16 * m}
	inner := []schedule.Segment{{Body: []schedule.Action{schedule.NewAction(schedule.F, 0, 0)}, Repeat: m, Stride: 1}}
	plan.Programs = [][]schedule.Segment{{{Inner: inner, Repeat: 16, Stride: m}}, {{Body: []schedule.Action{schedule.NewAction(schedule.F, 1, 0)}, Repeat: 16 * m, Stride: 1}}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := simulate.Run(plan, &simulate.Costs{Stages: []simulate.StageCosts{{F: 1}}}, schedule.Unlimited)
	runtime.ReadMemStats(&after)
	require.Contains(t, plantest.CodesOf(err), check.Unproved)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<30))
}

// The largest costs must not overflow in a plan without actions.
func TestSimulateOfNothing(t *testing.T) {
	plan := &schedule.Plan{Name: "empty", Placement: schedule.Looped(2, 2), Microbatches: 1, Programs: make([][]schedule.Segment, 2)}
	costs := &simulate.Costs{PerMiB: 1 << 48, Stages: []simulate.StageCosts{{Output: 1 << 48, Gradient: 1 << 48}}}
	_, err := simulate.Run(plan, costs, schedule.Unlimited)
	require.ErrorIs(t, err, simulate.ErrCosts)
}

// hungry returns the number of bytes that a function allocates.
func hungry(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// each returns a loop over all microbatches of a plan.
func each(microbatches int, kind schedule.Kind, stages ...int) schedule.Segment {
	s := schedule.Segment{Repeat: microbatches, Stride: 1}
	for _, stage := range stages {
		s.Body = append(s.Body, schedule.NewAction(kind, stage, 0))
	}
	return s
}

// A plan whose ranks drift apart is rejected before the contents of the links are recorded for
// every microbatch.
func TestTransfersOfDriftingRanks(t *testing.T) {
	const m = 60_000_000
	plan := &schedule.Plan{Name: "drifting", Placement: schedule.Placement{Ranks: 2, Rank: []int{0, 1, 1}}, Microbatches: m, Programs: [][]schedule.Segment{
		{each(m, schedule.F, 0), each(m, schedule.B, 0)},
		{each(m, schedule.F, 1, 2), each(m, schedule.B, 2, 1)},
	}}
	require.NoError(t, check.Plan(plan))
	var err error
	require.Less(t, hungry(func() { _, err = lower.Transfers(plan, 1) }), uint64(256<<20))
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, "use fewer microbatches")
}

// A plan whose rank takes its microbatches in another order than they arrive is rejected before all
// of them are buffered.
func TestSimulateOfAnotherOrder(t *testing.T) {
	const m = 1 << 24
	by := schedule.Segment{Inner: []schedule.Segment{{Body: []schedule.Action{schedule.NewAction(schedule.F, 1, 0)}, Repeat: 4, Stride: m / 4}}, Repeat: m / 4, Stride: 1}
	plan := &schedule.Plan{Name: "other", Mode: schedule.ForwardOnly, Placement: schedule.Looped(2, 2), Microbatches: m, Programs: [][]schedule.Segment{{each(m, schedule.F, 0)}, {by}}}
	var err error
	require.Less(t, hungry(func() {
		_, err = simulate.Run(plan, &simulate.Costs{Stages: []simulate.StageCosts{{F: 1}}}, schedule.Unlimited)
	}), uint64(128<<20))
	require.Contains(t, plantest.CodesOf(err), check.Unproved)
}

package layout_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
)

// TestTurns lays out programs that are too large for the available work, and compares the
// layouts with the whole programs.
func TestTurns(t *testing.T) {
	testkit.Slow(t)
	turned := 0
	for _, c := range []struct {
		name  string
		ranks int
	}{{"1f1b", 4}, {"interleaved", 4}, {"zb-h1", 4}, {"1f1b", 2}, {"zb-v", 2}} {
		plan := planned(t, c.name, c.ranks, 600, schedule.Training)
		made := laid(t, plan, model(plan.Placement.Depth(), 1, 48, 32), layout.Config{LookAhead: 1, Search: placement.Options{Nodes: 1}})
		for rank := range made.Ranks {
			requireLayout(t, made, rank, c.name)
			r := &made.Ranks[rank]
			if !strings.HasPrefix(r.Method, "one size in turns, ") {
				continue
			}
			turned++
			height, err := placement.Check(r.Problem, r.Offsets)
			require.NoError(t, err)
			require.Equal(t, r.Height, height)
			require.Equal(t, r.Bound, r.Problem.Bound())
			require.Len(t, r.Problem.Buffers, r.Buffers)
		}
	}
	require.GreaterOrEqual(t, turned, 6)
}

// TestTurnsOfManyRanks bounds the excess of a large plan without any search, and the births
// in its layouts, for any number of microbatches.
func TestTurnsOfManyRanks(t *testing.T) {
	testkit.Slow(t)
	if testkit.Raced {
		t.Skip("it takes a minute with the race detector")
	}
	plan := planned(t, "interleaved", 16, 1_000_000, schedule.Training)
	made := laid(t, plan, model(plan.Placement.Depth(), 1, 48, 32), layout.Config{Search: placement.Options{Nodes: 1}})
	for rank, r := range made.Ranks {
		require.Less(t, r.Gap(), 0.02, "rank %d", rank)
		require.Less(t, len(r.Layout.Allocations), 100_000, "rank %d", rank)
	}
}

// TestSegmentWithoutBirths lays out a rank with a long segment whose actions allocate nothing. The
// rank runs the first stage of one copy of the model, then the last stage of the other copy.
func TestSegmentWithoutBirths(t *testing.T) {
	f := func(stage, m int) schedule.Segment {
		return schedule.Segment{Body: []schedule.Action{schedule.NewAction(schedule.F, stage, m)}, Repeat: 100, Stride: 1}
	}
	plan := &schedule.Plan{
		Mode: schedule.ForwardOnly, Placement: schedule.Placement{Ranks: 2, Rank: []int{0, 1, 1, 0}, Copies: 2}, Microbatches: 200,
		Programs: [][]schedule.Segment{{f(0, 0), f(3, 100)}, {f(1, 0), f(2, 100)}},
	}
	plan, err := lower.Prepare(plan, lower.Passes{StageInfo: make([]schedule.StageInfo, 4), Capacity: 1})
	require.NoError(t, err)
	profile := layout.FromFigures(plan, []layout.Figures{{Output: 256}, {}, {}, {}})
	made := laid(t, plan, profile, layout.Config{LookAhead: 1, Search: placement.Options{Nodes: 1}})
	for rank := range made.Ranks {
		requireLayout(t, made, rank, "a segment without births")
	}
}

package schedule_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

func TestZBV(t *testing.T) {
	plan := plantest.Made(t, schedule.ZBV, schedule.Params{Placement: schedule.Wave(3, 6), Microbatches: 1_000_000})
	require.Equal(t, "rank 0:\nx 5 +1: 0F0\nx 3 +1: 5F0 5I0 5W0\nx 999995 +1: 0F5 0I0 0W0 5F3 5I3 5W3\n"+
		"x 2 +1: 0I999995 0W999995 5F999998 5I999998 5W999998\nx 3 +1: 0I999997 0W999997\n"+
		"rank 1:\nx 3 +1: 1F0\nx 1 +0: 4F0 1F3\nx 2 +1: 4F1 4I0 4W0\nx 999996 +1: 1F4 1I0 1W0 4F3 4I2 4W2\n"+
		"x 1 +0: 1I999996 1W999996 4F999999 4I999998 4W999998 1I999997 4I999999\nx 2 +1: 1I999998 1W999997\nx 1 +0: 4W999999 1W999999\n"+
		"rank 2:\nx 1 +0: 2F0\nx 2 +1: 3F0 2F1\nx 1 +0: 3F2 3I0 3W0\nx 999997 +1: 2F3 2I0 2W0 3F3 3I1 3W1\n"+
		"x 2 +1: 2I999997 3I999998\nx 1 +0: 2I999999 2W999997\nx 2 +1: 3W999998\nx 2 +1: 2W999998", segmented(t, plan))

	// The rule accepts fewer microbatches than 2P-1.
	plan = plantest.Made(t, schedule.ZBV, schedule.Params{Placement: schedule.Wave(2, 4), Microbatches: 1})
	require.Equal(t, "rank 0:\nx 1 +0: 0F0 3F0 3I0 3W0 0I0 0W0\nrank 1:\nx 1 +0: 1F0 2F0 2I0 2W0 1I0 1W0", segmented(t, plan))
}

// drawV draws parameters with two stages on each of up to 9 ranks, placed as a V.
func drawV(t *rapid.T) schedule.Params {
	ranks := rapid.IntRange(1, 9).Draw(t, "ranks")
	return drawMode(t, schedule.Params{
		Placement:    schedule.Wave(ranks, 2*ranks),
		Microbatches: rapid.IntRange(1, 40).Draw(t, "microbatches"),
	})
}

func TestZBVIsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawV(t)
		requireRule(t, schedule.ZBV, p, func(rank int) []schedule.Action { return zbv(p, rank) })
	})
}

// zbv returns the actions of a rank in PyTorch's order. It counts at least 2P-1 microbatches, and deletes the actions
// of those that the plan does not have.
func zbv(p schedule.Params, rank int) []schedule.Action {
	var list []schedule.Action
	ranks := p.Placement.Ranks
	microbatches := max(2*ranks-1, p.Microbatches)
	stage := [2]int{rank, 2*ranks - 1 - rank}
	var f, i, w [2]int
	add := func(kind schedule.Kind, chunk int, count *[2]int) {
		list = append(list, schedule.NewAction(kind, stage[chunk], count[chunk]))
		count[chunk]++
	}
	forward := func(chunk int) { add(schedule.F, chunk, &f) }
	input := func(chunk int) { add(schedule.I, chunk, &i) }
	weight := func(chunk int) { add(schedule.W, chunk, &w) }

	for range 2*(ranks-rank) - 1 {
		forward(0)
	}
	for range rank {
		forward(1)
		forward(0)
	}
	for range ranks - rank {
		forward(1)
		input(1)
		weight(1)
	}
	for f[1] < f[0] || f[0] < microbatches {
		if f[0] < microbatches {
			forward(0)
		}
		input(0)
		weight(0)
		forward(1)
		input(1)
		weight(1)
	}
	for range rank {
		input(0)
		input(1)
	}
	for range ranks - rank {
		input(0)
		weight(0)
	}
	for w[1] < i[1] {
		weight(1)
	}
	for w[0] < i[0] {
		weight(0)
	}
	return slices.DeleteFunc(list, func(a schedule.Action) bool { return a.Microbatch() >= p.Microbatches })
}

// The published figures: P whole microbatches in flight on every rank, and if F, I and W take equally long, no waiting
// between the first and the last action of a rank, and a bubble of half of (P-1)F in total. A tick is the time of the
// forward of a stage.
func TestZBVFigures(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4, 5, 8, 16} {
		for _, microbatches := range []int{2*ranks - 1, 2 * ranks, 3*ranks + 1} {
			plan := plantest.Made(t, schedule.ZBV, schedule.Params{Placement: schedule.Wave(ranks, 2*ranks), Microbatches: microbatches})
			require.Equal(t, slices.Repeat([]int{2 * ranks}, ranks), inFlight(plan))
			makespan, span := plantest.Clocks(t, plan, plantest.Ticks)
			require.Equal(t, 6*microbatches+ranks-1, makespan)
			require.Equal(t, 6*microbatches, span)
		}
	}
}

func TestOnAVOnly(t *testing.T) {
	for name, rule := range map[string]schedule.Rule{
		"zb-v": schedule.ZBV, "v-half": schedule.VHalf, "v-min": schedule.VMin, "dualpipev": schedule.DualPipeV,
	} {
		for _, placement := range []schedule.Placement{
			schedule.Looped(4, 8), schedule.Wave(4, 4), schedule.Wave(4, 12), schedule.Wave(4, 7), {Ranks: 4, Rank: []int{3, 2, 1, 0, 0, 1, 2, 3}},
		} {
			_, err := rule(schedule.Params{Placement: placement, Microbatches: 9})
			require.ErrorIs(t, err, schedule.ErrParams)
			require.ErrorContains(t, err, name+" runs two stages per rank, placed as a V: place 8 stages as Wave(4, 8) does")
		}
	}
	for _, test := range []struct {
		rule  schedule.Rule
		ranks int
		fault string
	}{
		{schedule.VHalf, 513, "v-half on 513 ranks: the limit is 512"},
		{schedule.VMin, 513, "v-min on 513 ranks: the limit is 512"},
		{schedule.DualPipeV, 4097, "dualpipev on 4097 ranks: the limit is 4096"},
	} {
		_, err := test.rule(schedule.Params{Placement: schedule.Wave(test.ranks, 2*test.ranks), Microbatches: 9})
		require.ErrorIs(t, err, schedule.ErrParams)
		require.ErrorContains(t, err, test.fault)
	}
}

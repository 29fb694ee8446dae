package schedule_test

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

func TestGroupedInterleave(t *testing.T) {
	plan := plantest.Made(t, schedule.GroupedInterleave, schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 1_000_000})
	require.Equal(t, "rank 0:\nx 1 +0: 0F0 0F1 2F0 2F1 2I0 2W0\n"+
		"x 499999 +2: 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2\n"+
		"x 1 +0: 2I999999 2W999999 0I999998 0W999998 0I999999 0W999999\n"+
		"rank 1:\nx 1 +0: 1F0 1F1 3F0 3I0 3W0 3F1 3I1\n"+
		"x 499999 +2: 3W1 1F2 1I0 1W0 1F3 1I1 1W1 3F2 3I2 3W2 3F3 3I3\n"+
		"x 1 +0: 3W999999 1I999998 1W999998 1I999999 1W999999", segmented(t, plan))
	require.Equal(t, "grouped-interleave", plan.Name)

	plan = plantest.Made(t, schedule.GroupedInterleave, schedule.Params{Placement: schedule.Looped(3, 6), Microbatches: 3, Group: 2})
	require.Equal(t, []string{
		"0F0 0F1 3F0 3F1 0F2 3I0 3W0 3I1 3W1 3F2 0I0 0W0 0I1 0W1 3I2 3W2 0I2 0W2",
		"1F0 1F1 4F0 4F1 4I0 4W0 1F2 4I1 4W1 1I0 1W0 4F2 1I1 1W1 4I2 4W2 1I2 1W2",
		"2F0 2F1 5F0 5I0 5W0 5F1 5I1 5W1 2F2 2I0 2W0 2I1 2W1 5F2 5I2 5W2 2I2 2W2",
	}, spelled(plan))
	require.Equal(t, "grouped-interleave group=2", plan.Name)
}

func TestGroupedInterleaveIsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawLooped(t)
		p.Group = rapid.IntRange(0, 20).Draw(t, "group")
		requireRule(t, schedule.GroupedInterleave, p, func(rank int) []schedule.Action { return groupedInterleave(t, p, rank) })
	})
}

// groupedInterleave places the actions of a rank in slots, group by group, as group_interleaved_1f1b.py of
// sail-sg/zero-bubble does, and returns them in the order of the slots.
func groupedInterleave(t require.TestingT, p schedule.Params, rank int) (list []schedule.Action) {
	ranks, depth := p.Placement.Ranks, p.Placement.Stages()/p.Placement.Ranks
	group := p.Group
	if group == 0 {
		group = ranks
	}
	least := (ranks + 1) / 2
	k := (least + group - 1) / group
	common := 1
	for d := 1; d <= depth; d++ {
		if depth%d == 0 && k%d == 0 {
			common = d
		}
	}
	type placed struct {
		slot   int
		action schedule.Action
	}
	var all []placed
	offset := func(chunk, member int) int {
		return 3*k*group*chunk + 3*member + 3*group*(chunk/(depth/common))
	}
	for first := 0; first < p.Microbatches; first += group {
		began := first / group * 3 * group * depth
		firstI := offset(depth-1, 0) + rank + 3*(ranks-1-rank) + 1
		for mb := first; mb < min(first+group, p.Microbatches); mb++ {
			for chunk := range depth {
				at := began + offset(chunk, mb-first)
				forward, backward := chunk*ranks+rank, (depth-1-chunk)*ranks+rank
				all = append(all,
					placed{at + rank, schedule.NewAction(schedule.F, forward, mb)},
					placed{at + firstI, schedule.NewAction(schedule.I, backward, mb)},
					placed{at + firstI + 1, schedule.NewAction(schedule.W, backward, mb)})
			}
		}
	}
	slices.SortFunc(all, func(a, b placed) int { return cmp.Compare(a.slot, b.slot) })
	for i, x := range all {
		if i > 0 {
			require.Less(t, all[i-1].slot, x.slot, "two actions are in a slot")
		}
		list = append(list, x.action)
	}
	return list
}

// TestGroupedInterleaveFigures checks the published figures. With groups of P, there are P whole microbatches in
// flight, whereas Interleaved has 11.5 on 8 ranks; with groups of P/2, there are three quarters of that. For P = 8, the
// bubbles are 7 and 9 forwards of a rank.
func TestGroupedInterleaveFigures(t *testing.T) {
	for _, test := range []struct{ ranks, depth, group, stages, bubble int }{
		{8, 2, 8, 16, 14},
		{8, 2, 4, 12, 18},
		{4, 2, 4, 8, 6},
		{4, 2, 2, 6, 8},
		{16, 2, 16, 32, 30},
		{16, 2, 8, 24, 38},
		{4, 3, 4, 12, 6},
		{8, 4, 8, 32, 14},
	} {
		for _, microbatches := range []int{2 * test.ranks, 4 * test.ranks} {
			plan := plantest.Made(t, schedule.GroupedInterleave, schedule.Params{
				Placement: schedule.Looped(test.ranks, test.ranks*test.depth), Microbatches: microbatches, Group: test.group,
			})
			require.Equal(t, test.stages, slices.Max(inFlight(plan)), test)
			makespan, _ := plantest.Clocks(t, plan, plantest.Ticks)
			require.Equal(t, 3*test.depth*microbatches+test.bubble, makespan, test)
		}
	}
	for ranks := 1; ranks <= 9; ranks++ {
		for depth := 1; depth <= 4; depth++ {
			plan := plantest.Made(t, schedule.GroupedInterleave, schedule.Params{Placement: schedule.Looped(ranks, ranks*depth), Microbatches: 3 * ranks})
			require.Equal(t, ranks*depth, slices.Max(inFlight(plan)))
			makespan, _ := plantest.Clocks(t, plan, plantest.Ticks)
			require.Equal(t, 9*depth*ranks+2*(ranks-1), makespan)
		}
	}
}

func TestGroupedInterleaveSaysWhatWorks(t *testing.T) {
	for _, test := range []struct {
		params schedule.Params
		fault  string
	}{
		{schedule.Params{Placement: schedule.Looped(4, 6)}, "stage s on rank s mod 4: place 4, 8 or another multiple of 4 stages"},
		{schedule.Params{Placement: schedule.Wave(4, 8)}, "stage s on rank s mod 4: place 4, 8 or another multiple of 4 stages"},
		{schedule.Params{Placement: schedule.Looped(4, 8), Group: 1 << 24}, "groups of 16777216 microbatches over 8 stages take more than 16777216 actions to write out: use smaller groups"},
	} {
		test.params.Microbatches = schedule.MaxMicrobatches
		_, err := schedule.GroupedInterleave(test.params)
		require.ErrorIs(t, err, schedule.ErrParams)
		require.ErrorContains(t, err, test.fault)
	}
}

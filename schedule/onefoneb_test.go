package schedule_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

func TestOneFOneB(t *testing.T) {
	plan := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(3, 3), Microbatches: 1_000_000})
	require.Equal(t, "rank 0:\nx 2 +1: 0F0\nx 999998 +1: 0F2 0B0\nx 2 +1: 0B999998\n"+
		"rank 1:\nx 1 +0: 1F0\nx 999999 +1: 1F1 1B0\nx 1 +0: 1B999999\n"+
		"rank 2:\nx 1000000 +1: 2F0 2B0", segmented(t, plan))

	// The second stage is frozen after one that trains, and the first rank has two stages.
	plan = plantest.Made(t, schedule.OneFOneB, schedule.Params{
		Placement: schedule.Placement{Ranks: 2, Rank: []int{0, 0, 1}}, Microbatches: 4, Frozen: []bool{false, true, false},
	})
	require.Equal(t, "rank 0:\nx 1 +0: 0F0 1F0\nx 3 +1: 0F1 1F1 1I0 0B0\nx 1 +0: 1I3 0B3\nrank 1:\nx 4 +1: 2F0 2B0", segmented(t, plan))

	// A rank without a backward has one segment.
	plan = plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 9, Frozen: []bool{true, false}})
	require.Equal(t, "rank 0:\nx 9 +1: 0F0\nrank 1:\nx 9 +1: 1F0 1B0", segmented(t, plan))
}

func TestOneFOneBIsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawChain(t)
		requireRule(t, schedule.OneFOneB, p, func(rank int) (list []schedule.Action) {
			ahead, done := 0, 0
			forward := func() {
				for _, s := range p.Placement.On(rank) {
					list = append(list, schedule.NewAction(schedule.F, s, ahead))
				}
				ahead++
			}
			for range min(p.Placement.Ranks-rank-1, p.Microbatches) {
				forward()
			}
			for ; done < p.Microbatches; done++ {
				if ahead < p.Microbatches {
					forward()
				}
				on := p.Placement.On(rank)
				for i := range on {
					list = append(list, schedule.NewAction(schedule.B, on[len(on)-1-i], done))
				}
			}
			return list
		})
	})
}

func TestOneFOneBFigures(t *testing.T) {
	for ranks := 1; ranks <= 8; ranks++ {
		for depth := 1; depth <= 3; depth++ {
			for microbatches := 1; microbatches <= 20; microbatches++ {
				placement := schedule.Placement{Ranks: ranks}
				for s := range ranks * depth {
					placement.Rank = append(placement.Rank, s/depth)
				}
				plan := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: placement, Microbatches: microbatches})
				end, _ := plantest.Clocks(t, plan, plantest.Ticks)
				require.Equal(t, (microbatches+ranks-1)*3*depth, end)
				for rank, peak := range inFlight(plan) {
					require.Equal(t, min(ranks-rank, microbatches)*depth, peak)
				}
			}
		}
	}
}

func TestChainsOnly(t *testing.T) {
	for _, test := range []struct {
		placement schedule.Placement
		fault     string
	}{
		{schedule.Looped(2, 4), "1f1b passes through the ranks once, but stage 2 on rank 0 comes after rank 1"},
		{schedule.Placement{Ranks: 2, Rank: []int{1, 0}}, "stage 0 on rank 1 comes after rank -1"},
		{schedule.Placement{Ranks: 3, Rank: []int{0, 2}}, "stage 1 on rank 2 comes after rank 0"},
		{schedule.Looped(4, 3), "1f1b needs a stage on every rank: use 3 ranks, or place a stage on each of the 4"},
	} {
		_, err := schedule.OneFOneB(schedule.Params{Placement: test.placement, Microbatches: 4})
		require.ErrorIs(t, err, schedule.ErrParams)
		require.ErrorContains(t, err, test.fault)
	}
}

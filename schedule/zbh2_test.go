package schedule_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

func TestZBH2(t *testing.T) {
	plan, err := schedule.ZBH2(schedule.Params{Placement: schedule.Looped(3, 3), Microbatches: 1_000_000})
	require.NoError(t, err)
	require.Equal(t, "rank 0:\nx 4 +1: 0F0\nx 999996 +1: 0F4 0I0 0W0\nx 4 +1: 0I999996 0W999996\n"+
		"rank 1:\nx 2 +1: 1F0\nx 2 +1: 1F2 1I0\nx 999996 +1: 1F4 1I2 1W0\nx 2 +1: 1I999998 1W999996\nx 2 +1: 1W999998\n"+
		"rank 2:\nx 4 +1: 2F0 2I0\nx 999996 +1: 2F4 2I4 2W0\nx 4 +1: 2W999996", segmented(t, plan))
	require.Equal(t, "zb-h2", plan.Name)

	plan, err = schedule.ZBH2(schedule.Params{Placement: schedule.Looped(3, 3), Microbatches: 4, Cap: 2})
	require.NoError(t, err)
	require.Equal(t, "rank 0:\nx 1 +0: 0F0\nx 3 +1: 0F1 0I0 0W0\nx 1 +0: 0I3 0W3\n"+
		"rank 1:\nx 1 +0: 1F0 1I0\nx 3 +1: 1F1 1I1 1W0\nx 1 +0: 1W3\n"+
		"rank 2:\nx 1 +0: 2F0 2I0\nx 3 +1: 2F1 2I1 2W0\nx 1 +0: 2W3", segmented(t, plan))
	require.Equal(t, "zb-h2 cap=2", plan.Name)
}

func TestZBH2IsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawChain(t)
		p.Cap = rapid.OneOf(rapid.IntRange(0, 20), rapid.Just(math.MaxInt)).Draw(t, "cap")
		requireRule(t, schedule.ZBH2, p, func(rank int) []schedule.Action {
			inFlight := p.Cap
			if inFlight == 0 {
				inFlight = 2*p.Placement.Ranks - 1
			}
			inFlight = min(inFlight, 1_000)
			warmup := max(1, min(inFlight-rank, 2*(p.Placement.Ranks-rank)-1)) - 1
			return zeroBubble(p, rank, warmup, inFlight-1-warmup)
		})
	})
}

func TestZBH2AtPIsZBH1(t *testing.T) {
	for ranks := 1; ranks <= 8; ranks++ {
		p := schedule.Params{Placement: schedule.Looped(ranks, ranks), Microbatches: 3 * ranks}
		first, err := schedule.ZBH1(p)
		require.NoError(t, err)
		p.Cap = ranks
		second, err := schedule.ZBH2(p)
		require.NoError(t, err)
		require.Equal(t, first.Programs, second.Programs)
	}
}

// The published figures: every rank has at most the cap in flight, and with a cap of
// 2P-1 no rank waits between its first and its last action. Each decrement of the cap below 2P-1 costs a rank the time
// of one forward.
func TestZBH2Figures(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4, 5, 8, 16} {
		for most := 1; most <= 2*ranks+2; most++ {
			for _, microbatches := range []int{2*ranks + 2, 4 * ranks} {
				plan, err := schedule.ZBH2(schedule.Params{Placement: schedule.Looped(ranks, ranks), Microbatches: microbatches, Cap: most})
				require.NoError(t, err)
				require.Equal(t, slices.Repeat([]int{min(most, microbatches)}, ranks), inFlight(plan))
				if most >= ranks {
					makespan, span := plantest.Clocks(t, plan, plantest.Ticks)
					require.Equal(t, 3*microbatches+ranks-1, makespan)
					require.Equal(t, 3*microbatches+max(0, 2*ranks-1-most), span)
				}
			}
		}
	}
}

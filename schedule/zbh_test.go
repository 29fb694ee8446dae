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

func TestZBH1(t *testing.T) {
	plan := plantest.Made(t, schedule.ZBH1, schedule.Params{Placement: schedule.Looped(3, 3), Microbatches: 1_000_000})
	require.Equal(t, "rank 0:\nx 2 +1: 0F0\nx 999998 +1: 0F2 0I0 0W0\nx 2 +1: 0I999998 0W999998\n"+
		"rank 1:\nx 1 +0: 1F0 1F1 1I0\nx 999998 +1: 1F2 1I1 1W0\nx 1 +0: 1I999999 1W999998 1W999999\n"+
		"rank 2:\nx 2 +1: 2F0 2I0\nx 999998 +1: 2F2 2I2 2W0\nx 2 +1: 2W999998", segmented(t, plan))

	// Two stages are on a rank, and the first one is frozen.
	plan = plantest.Made(t, schedule.ZBH1, schedule.Params{
		Placement: schedule.Placement{Ranks: 2, Rank: []int{0, 0, 1}}, Microbatches: 4, Frozen: []bool{true, false, false},
	})
	require.Equal(t, "rank 0:\nx 1 +0: 0F0 1F0\nx 3 +1: 0F1 1F1 1I0 1W0\nx 1 +0: 1I3 1W3\n"+
		"rank 1:\nx 1 +0: 2F0 2I0\nx 3 +1: 2F1 2I1 2W0\nx 1 +0: 2W3", segmented(t, plan))
}

func TestZBH1IsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawChain(t)
		requireRule(t, schedule.ZBH1, p, func(rank int) []schedule.Action {
			return zeroBubble(p, rank, p.Placement.Ranks-1-rank, rank)
		})
	})
}

// zeroBubble returns the actions of a rank in slots of a forward, an I and a W, any of which may be missing. warmup
// forwards run before the first slot, and the first putOff slots have no W.
func zeroBubble(p schedule.Params, rank, warmup, putOff int) (list []schedule.Action) {
	on := p.Placement.On(rank)
	back := slices.Clone(on)
	slices.Reverse(back)
	add := func(kind schedule.Kind, stages []int, mb int) {
		for _, s := range stages {
			if mb >= 0 && mb < p.Microbatches {
				list = append(list, schedule.NewAction(kind, s, mb))
			}
		}
	}
	for mb := range min(warmup, p.Microbatches) {
		add(schedule.F, on, mb)
	}
	for slot := range p.Microbatches + putOff {
		add(schedule.F, on, warmup+slot)
		add(schedule.I, back, slot)
		add(schedule.W, back, slot-putOff)
	}
	return list
}

// profiles are costs of F, I and W: equal ones, and two measured profiles.
var profiles = [][3]int{{1, 1, 1}, {18_522, 18_086, 9_337}, {29_718, 29_444, 19_927}}

// costs returns the function that gives the cost of an action in a profile.
func costs(profile [3]int) func(schedule.Action) int {
	return func(a schedule.Action) int {
		switch a.Kind() {
		case schedule.F:
			return profile[0]
		case schedule.I:
			return profile[1]
		case schedule.W:
			return profile[2]
		default:
			return profile[1] + profile[2]
		}
	}
}

// The published figures: P microbatches in flight on every rank and a bubble of (P-1)(F+I-W).
func TestZBH1Figures(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4, 5, 8, 16} {
		for _, microbatches := range []int{ranks, 2*ranks + 1, 4 * ranks} {
			plan := plantest.Made(t, schedule.ZBH1, schedule.Params{Placement: schedule.Looped(ranks, ranks), Microbatches: microbatches})
			require.Equal(t, slices.Repeat([]int{ranks}, ranks), inFlight(plan))
			for _, cost := range profiles {
				f, i, w := cost[0], cost[1], cost[2]
				makespan, _ := plantest.Clocks(t, plan, costs(cost))
				require.Equal(t, microbatches*(f+i+w)+(ranks-1)*(f+i-w), makespan)
			}
		}
	}
}

func TestZBH2(t *testing.T) {
	plan := plantest.Made(t, schedule.ZBH2, schedule.Params{Placement: schedule.Looped(3, 3), Microbatches: 1_000_000})
	require.Equal(t, "rank 0:\nx 4 +1: 0F0\nx 999996 +1: 0F4 0I0 0W0\nx 4 +1: 0I999996 0W999996\n"+
		"rank 1:\nx 2 +1: 1F0\nx 2 +1: 1F2 1I0\nx 999996 +1: 1F4 1I2 1W0\nx 2 +1: 1I999998 1W999996\nx 2 +1: 1W999998\n"+
		"rank 2:\nx 4 +1: 2F0 2I0\nx 999996 +1: 2F4 2I4 2W0\nx 4 +1: 2W999996", segmented(t, plan))
	require.Equal(t, "zb-h2", plan.Name)

	plan = plantest.Made(t, schedule.ZBH2, schedule.Params{Placement: schedule.Looped(3, 3), Microbatches: 4, Cap: 2})
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
		first := plantest.Made(t, schedule.ZBH1, p)
		p.Cap = ranks
		second := plantest.Made(t, schedule.ZBH2, p)
		require.Equal(t, first.Programs, second.Programs)
	}
}

// The published figures: every rank has as many microbatches in flight as the cap allows, and with a cap of 2P-1 no
// rank waits between its first and its last action. Each decrement of the cap from 2P-1 to P costs a rank the time of one
// forward.
func TestZBH2Figures(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4, 5, 8, 16} {
		for most := 1; most <= 2*ranks+2; most++ {
			for _, microbatches := range []int{2*ranks + 2, 4 * ranks} {
				plan := plantest.Made(t, schedule.ZBH2, schedule.Params{Placement: schedule.Looped(ranks, ranks), Microbatches: microbatches, Cap: most})
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

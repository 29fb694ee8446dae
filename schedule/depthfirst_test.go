package schedule_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
)

func TestDepthFirstOnSeveralRanks(t *testing.T) {
	// With one stage per rank, depth-first is 1F1B.
	p := schedule.Params{Placement: schedule.Looped(3, 3), Microbatches: 1_000_000}
	plan := plantest.Made(t, schedule.DepthFirst, p)
	same := plantest.Made(t, schedule.OneFOneB, p)
	require.Equal(t, "depth-first", plan.Name)
	require.Equal(t, same.Programs, plan.Programs)

	p = schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 1_000_000, Cap: 1}
	plan = plantest.Made(t, schedule.DepthFirst, p)
	require.Equal(t, "depth-first cap=1", plan.Name)
	require.Equal(t, "rank 0:\n"+
		"x 1 +0: 0F0\nx 999999 +1: 2F0 2B0 0B0 0F1\nx 1 +0: 2F999999 2B999999 0B999999\n"+
		"rank 1:\n"+
		"x 1000000 +1: 1F0 3F0 3B0 1B0", segmented(t, plan))
}

func TestDepthFirstIsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawAnywhere(t)
		if p.Placement.Ranks == 1 {
			return // TestOneRank
		}
		p.Cap = max(0, rapid.IntRange(-3, 6).Draw(t, "cap"))
		orders := greedy(p)
		requireRule(t, schedule.DepthFirst, p, func(rank int) []schedule.Action { return orders[rank] })
	})
}

// A plan of many microbatches is equal to the plan that results without skipping repeats.
func TestDepthFirstLeaps(t *testing.T) {
	for _, test := range []struct {
		placement schedule.Placement
		cap       int
		written   int // actions in all bodies
	}{
		{schedule.Looped(2, 2), 0, 6}, {schedule.Looped(2, 4), 0, 24}, {schedule.Looped(3, 3), 2, 10}, {schedule.Looped(3, 6), 0, 156},
		{schedule.Looped(4, 8), 2, 112}, {schedule.Looped(4, 8), 0, 368}, {schedule.Looped(4, 8), 5, 176}, {schedule.Looped(3, 5), 0, 66},
		{schedule.Wave(3, 7), 0, 192},
	} {
		p := schedule.Params{Placement: test.placement, Microbatches: 170, Cap: test.cap}
		orders := greedy(p)
		requireRule(t, schedule.DepthFirst, p, func(rank int) []schedule.Action { return orders[rank] })

		p.Microbatches = 1_000_000
		plan := plantest.Made(t, schedule.DepthFirst, p)
		total := 0
		for rank, program := range plan.Programs {
			require.EqualValues(t, 2*p.Microbatches*len(p.Placement.On(rank)), plan.Actions(rank))
			for _, s := range program {
				total += len(s.Body)
			}
		}
		require.Equal(t, test.written, total, test)
	}
}

// greedy lets the ranks work tick by tick and returns the actions that each has begun. It
// examines every microbatch at every tick.
func greedy(p schedule.Params) [][]schedule.Action {
	ranks, stages := p.Placement.Ranks, p.Placement.Stages()
	orders := make([][]schedule.Action, ranks)
	free := make([]int, ranks)
	end := map[schedule.Action]int{} // when each begun action ends
	left := 2 * stages * p.Microbatches
	for now := 0; left > 0; now++ {
		done := func(a schedule.Action) bool {
			at, begun := end[a]
			return begun && at <= now
		}
		begin := map[int]schedule.Action{}
		for rank := range ranks {
			on := p.Placement.On(rank)
			if free[rank] > now || len(on) == 0 {
				continue
			}
			limit := stages - on[0]
			if p.Cap > 0 {
				limit = p.Cap * len(on)
			}
			held := 0
			for _, a := range orders[rank] {
				if a.Kind() == schedule.F {
					held++
				} else {
					held--
				}
			}
			for mb := p.Microbatches - 1; mb >= 0; mb-- { // the lowest one is kept
				for _, s := range on {
					a := schedule.NewAction(schedule.B, s, mb)
					_, begun := end[a]
					if !begun && done(schedule.NewAction(schedule.F, s, mb)) && (s == stages-1 || done(schedule.NewAction(schedule.B, s+1, mb))) {
						begin[rank] = a
					}
				}
			}
			if _, backward := begin[rank]; backward {
				continue
			}
			for i, s := range on { // the highest one is kept
				for mb := p.Microbatches - 1; mb >= 0; mb-- {
					a := schedule.NewAction(schedule.F, s, mb)
					_, begun := end[a]
					if !begun && (s == 0 || done(schedule.NewAction(schedule.F, s-1, mb))) && held+len(on)-i <= limit {
						begin[rank] = a
					}
				}
			}
		}
		for rank, a := range begin {
			orders[rank] = append(orders[rank], a)
			free[rank] = now + plantest.Ticks(a)
			end[a] = free[rank]
			left--
		}
	}
	return orders
}

func TestDepthFirstHoldsItsCap(t *testing.T) {
	for ranks := 2; ranks <= 8; ranks++ {
		for depth := 1; depth <= 4; depth++ {
			for capped := 0; capped <= ranks+2; capped++ {
				plan := plantest.Made(t, schedule.DepthFirst, schedule.Params{
					Placement: schedule.Looped(ranks, ranks*depth), Microbatches: 30, Cap: capped,
				})
				plantest.Clocks(t, plan, plantest.Ticks)
				for rank, peak := range inFlight(plan) {
					if capped == 0 {
						require.LessOrEqual(t, peak, ranks*depth-rank)
					} else {
						require.LessOrEqual(t, peak, capped*depth)
					}
				}
			}
		}
	}
}

func TestDepthFirstSaysWhatWorks(t *testing.T) {
	testkit.Slow(t)
	_, err := schedule.DepthFirst(schedule.Params{Placement: schedule.Looped(1, schedule.MaxStages), Microbatches: schedule.MaxMicrobatches, Group: 1 << 20})
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, "use a smaller group")
	_, err = schedule.DepthFirst(schedule.Params{Placement: schedule.Looped(64, 256), Microbatches: schedule.MaxMicrobatches})
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, "finds no order that repeats within 4194304 actions of these 256 stages: use fewer microbatches or stages, or another cap")
	_, err = schedule.DepthFirst(schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 8, Group: 2})
	require.ErrorContains(t, err, "depth-first on several ranks has no groups")
}

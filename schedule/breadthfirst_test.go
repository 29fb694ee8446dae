package schedule_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

func TestBreadthFirst(t *testing.T) {
	p := schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 1_000_000}
	plan := plantest.Made(t, schedule.BreadthFirst, p)
	require.Equal(t, "rank 0:\nx 1000000 +1: 0F0\nx 1000000 +1: 2F0\nx 1000000 +1: 2B0\nx 1000000 +1: 0B0\n"+
		"rank 1:\nx 1000000 +1: 1F0\nx 1000000 +1: 3F0\nx 1000000 +1: 3B0\nx 1000000 +1: 1B0", segmented(t, plan))

	plan = plantest.Made(t, schedule.BreadthFirstDescending, p)
	require.Equal(t, "breadth-first descending", plan.Name)
	require.Equal(t, "rank 0:\nx 1000000 +1: 0F0\nx 1000000 +1: 2F0\nx 1000000 -1: 2B999999\nx 1000000 -1: 0B999999\n"+
		"rank 1:\nx 1000000 +1: 1F0\nx 1000000 +1: 3F0\nx 1000000 -1: 3B999999\nx 1000000 -1: 1B999999", segmented(t, plan))
}

func TestBreadthFirstIsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawAnywhere(t)
		naive := func(descending bool) func(int) []schedule.Action {
			return func(rank int) (list []schedule.Action) {
				for _, s := range p.Placement.On(rank) {
					list = append(list, all(schedule.F, s, 0, p.Microbatches)...)
				}
				for _, s := range slices.Backward(p.Placement.On(rank)) {
					back := all(schedule.B, s, 0, p.Microbatches)
					if descending {
						slices.Reverse(back)
					}
					list = append(list, back...)
				}
				return list
			}
		}
		requireRule(t, schedule.BreadthFirst, p, naive(false))
		requireRule(t, schedule.BreadthFirstDescending, p, naive(true))
	})
}

func TestBreadthFirstFigures(t *testing.T) {
	for ranks := 1; ranks <= 8; ranks++ {
		for depth := 1; depth <= 4; depth++ {
			for microbatches := ranks; microbatches <= ranks+9; microbatches++ {
				for _, rule := range []schedule.Rule{schedule.BreadthFirst, schedule.BreadthFirstDescending} {
					plan := plantest.Made(t, rule, schedule.Params{Placement: schedule.Looped(ranks, ranks*depth), Microbatches: microbatches})
					end, _ := plantest.Clocks(t, plan, plantest.Ticks)
					require.Equal(t, (microbatches*depth+ranks-1)*3, end)
					require.Equal(t, slices.Repeat([]int{microbatches * depth}, ranks), inFlight(plan))
				}
			}
		}
	}
}

package schedule_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

func TestGPipe(t *testing.T) {
	plan := plantest.Made(t, schedule.GPipe, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 1_000_000})
	require.Equal(t, "rank 0:\nx 1000000 +1: 0F0\nx 1000000 +1: 0B0\nrank 1:\nx 1000000 +1: 1F0\nx 1000000 +1: 1B0", segmented(t, plan))

	// A microbatch runs through consecutive stages of a rank in a row.
	plan = plantest.Made(t, schedule.GPipe, schedule.Params{Placement: schedule.Placement{Ranks: 2, Rank: []int{0, 0, 1, 0}}, Microbatches: 2})
	require.Equal(t, "rank 0:\nx 2 +1: 0F0 1F0\nx 2 +1: 3F0\nx 2 +1: 3B0\nx 2 +1: 1B0 0B0\nrank 1:\nx 2 +1: 2F0\nx 2 +1: 2B0", segmented(t, plan))
}

func TestGPipeIsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawAnywhere(t)
		requireRule(t, schedule.GPipe, p, func(rank int) []schedule.Action { return gpipe(p, rank) })
	})
}

// gpipe returns the actions of a rank: one block of consecutive stages after another, and within a block one microbatch
// after another.
func gpipe(p schedule.Params, rank int) (list []schedule.Action) {
	var back []schedule.Action // the backwards, from the last one to the first
	stages := p.Placement.Stages()
	for first := 0; first < stages; {
		last := first
		for last+1 < stages && p.Placement.Rank[last+1] == p.Placement.Rank[first] {
			last++
		}
		if p.Placement.Rank[first] == rank {
			for mb := range p.Microbatches {
				for s := first; s <= last; s++ {
					list = append(list, schedule.NewAction(schedule.F, s, mb))
				}
			}
			for mb := p.Microbatches - 1; mb >= 0; mb-- {
				for s := first; s <= last; s++ {
					back = append(back, schedule.NewAction(schedule.B, s, mb))
				}
			}
		}
		first = last + 1
	}
	slices.Reverse(back)
	return append(list, back...)
}

func TestGPipeFigures(t *testing.T) {
	for ranks := 1; ranks <= 8; ranks++ {
		for microbatches := 1; microbatches <= 12; microbatches++ {
			plan := plantest.Made(t, schedule.GPipe, schedule.Params{Placement: schedule.Looped(ranks, ranks), Microbatches: microbatches})
			end, _ := plantest.Clocks(t, plan, plantest.Ticks)
			require.Equal(t, (microbatches+ranks-1)*3, end)
			require.Equal(t, slices.Repeat([]int{microbatches}, ranks), inFlight(plan))
		}
	}
}

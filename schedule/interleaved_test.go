package schedule_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

// signed returns the actions of a rank as Megatron's order list: the number of the stage on the rank, from 1, and
// negative for a backward.
func signed(p *schedule.Plan, rank int) (order []int) {
	for a := range p.All(rank) {
		chunk := a.Stage()/p.Placement.Ranks + 1
		if a.Kind() != schedule.F {
			chunk = -chunk
		}
		order = append(order, chunk)
	}
	return order
}

// TestMegatronsTable checks the example in Megatron's documentation: two ranks of two stages, five microbatches in
// groups of three.
func TestMegatronsTable(t *testing.T) {
	plan := plantest.Made(t, schedule.Interleaved, schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 5, Group: 3})
	require.Equal(t, []int{1, 1, 1, 2, 2, 2, -2, 1, -2, 1, -2, 2, -1, 2, -1, -1, -2, -2, -1, -1}, signed(plan, 0))
	require.Equal(t, "rank 0:\n"+
		"x 1 +0: 0F0 0F1 0F2 2F0 2F1 2F2 2B0 0F3 2B1 0F4 2B2 2F3 0B0 2F4 0B1 0B2 2B3 2B4 0B3 0B4\n"+
		"rank 1:\n"+
		"x 1 +0: 1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4 1B1 3F3 1B2 3F4 3B3 3B4 1B3 1B4", segmented(t, plan))
}

// A forward-only plan repeats group by group.
func TestInterleavedForwardOnly(t *testing.T) {
	plan := plantest.Made(t, schedule.Interleaved, schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 1_000_000, Mode: schedule.ForwardOnly})
	require.Equal(t, "rank 0:\nx 500000 +2: 0F0 0F1 2F0 2F1\nrank 1:\nx 1 +0: 1F0 1F1\nx 499999 +2: 3F0 3F1 1F2 1F3\nx 1 +0: 3F999998 3F999999",
		segmented(t, plan))
}

// TestMegatronsInvariants checks the invariants of Megatron's own test of its order lists, for
// the same ranks, groups, microbatches and stages per rank.
func TestMegatronsInvariants(t *testing.T) {
	for _, pg := range [][2]int{{1, 1}, {2, 2}, {2, 4}, {4, 4}, {4, 5}, {8, 9}, {8, 11}} {
		ranks, group := pg[0], pg[1]
		for _, microbatches := range []int{8, 32} {
			for _, depth := range []int{1, 2, 4, 8} {
				rule := schedule.Interleaved
				if depth == 1 {
					rule, group = schedule.OneFOneB, 0
				}
				plan := plantest.Made(t, rule, schedule.Params{Placement: schedule.Looped(ranks, ranks*depth), Microbatches: microbatches, Group: group})
				for rank := range ranks {
					order := signed(plan, rank)
					require.Len(t, order, microbatches*depth*2)
					count, sum := map[int]int{}, 0
					for _, o := range order {
						count[o]++
						sum += o
						require.GreaterOrEqual(t, sum, 0)
						require.GreaterOrEqual(t, count[max(o, -o)], count[min(o, -o)])
						require.Contains(t, count, max(o, -o))
						require.LessOrEqual(t, max(o, -o), depth)
					}
					require.Zero(t, sum)
					require.Len(t, count, 2*depth)
					for o, n := range count {
						require.Equal(t, microbatches, n, o)
					}
				}
			}
		}
	}
}

func TestInterleavedIsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawLooped(t)
		if rapid.Bool().Draw(t, "groups") {
			p.Group = p.Placement.Ranks + rapid.IntRange(0, 12).Draw(t, "group")
		}
		requireRule(t, schedule.Interleaved, p, func(rank int) []schedule.Action { return interleaved(p, rank) })
	})
}

// interleaved returns the actions of a rank in Megatron's order, from a table of all forwards. If Megatron
// refuses the number of microbatches, interleaved uses the next number that Megatron accepts, without the
// additional microbatches.
func interleaved(p schedule.Params, rank int) (list []schedule.Action) {
	ranks, depth := p.Placement.Ranks, p.Placement.Stages()/p.Placement.Ranks
	group := max(p.Group, ranks)
	if group > p.Microbatches {
		group = max(p.Microbatches, ranks)
	}
	microbatches := p.Microbatches
	for microbatches%group != 0 && microbatches%group < ranks {
		microbatches++
	}
	if p.Microbatches%group != 0 && microbatches != p.Microbatches {
		for microbatches%group != 0 {
			microbatches++
		}
	}
	var table [][2]int // microbatch, place of the stage
	for first := 0; first < microbatches; first += group {
		for v := range depth {
			for mb := first; mb < min(first+group, microbatches); mb++ {
				table = append(table, [2]int{mb, v})
			}
		}
	}
	add := func(kind schedule.Kind, mb, v int) {
		if mb < p.Microbatches {
			list = append(list, schedule.NewAction(kind, v*ranks+rank, mb))
		}
	}
	warmup := min((ranks-rank-1)*2+(depth-1)*group, len(table))
	for i, f := range table {
		add(schedule.F, f[0], f[1])
		if i >= warmup {
			b := table[i-warmup]
			add(schedule.B, b[0], depth-1-b[1])
		}
	}
	for _, b := range table[len(table)-warmup:] {
		add(schedule.B, b[0], depth-1-b[1])
	}
	return list
}

// TestInterleavedFigures checks the published figures of the rule for a whole number of groups: the microbatches in
// flight, counting each stage separately, and a bubble of (P-1)(F+B)/V.
func TestInterleavedFigures(t *testing.T) {
	for ranks := 1; ranks <= 8; ranks++ {
		for depth := 1; depth <= 4; depth++ {
			for _, group := range []int{ranks, ranks + 3} {
				for _, groups := range []int{1, 2, 3, 4} {
					plan := plantest.Made(t, schedule.Interleaved, schedule.Params{
						Placement: schedule.Looped(ranks, ranks*depth), Microbatches: groups * group, Group: group,
					})
					end, _ := plantest.Clocks(t, plan, plantest.Ticks)
					require.Equal(t, (groups*group*depth+ranks-1)*3, end)
					for rank, peak := range inFlight(plan) {
						require.Equal(t, min(2*(ranks-1-rank)+(depth-1)*group+1, groups*group*depth), peak)
					}
				}
			}
		}
	}
	// Others have measured the same numbers.
	plan := plantest.Made(t, schedule.Interleaved, schedule.Params{Placement: schedule.Looped(8, 16), Microbatches: 64})
	require.Equal(t, []int{23, 21, 19, 17, 15, 13, 11, 9}, inFlight(plan))
}

func TestInterleavedSaysWhatWorks(t *testing.T) {
	for _, test := range []struct {
		params schedule.Params
		fault  string
	}{
		{schedule.Params{Placement: schedule.Looped(4, 6)}, "stage s on rank s mod 4: place 4, 8 or another multiple of 4 stages"},
		{schedule.Params{Placement: schedule.Wave(4, 8)}, "stage s on rank s mod 4: place 4, 8 or another multiple of 4 stages"},
		{schedule.Params{Placement: schedule.Looped(4, 8), Group: 3}, "interleaved in groups of 3 on 4 ranks: a group must fill the pipeline: use 4 or more, or 0 for 4"},
		{schedule.Params{Placement: schedule.Looped(4, 8), Group: 1 << 24}, "groups of 16777216 microbatches over 8 stages take more than 16777216 actions to write out: use smaller groups"},
	} {
		test.params.Microbatches = schedule.MaxMicrobatches
		_, err := schedule.Interleaved(test.params)
		require.ErrorIs(t, err, schedule.ErrParams)
		require.ErrorContains(t, err, test.fault)
	}
}

package schedule_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

func TestSeq1F1B(t *testing.T) {
	plan := plantest.Made(t, schedule.Seq1F1B, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 300_001, Slices: 3})
	require.Equal(t, 3, plan.Slices)
	require.Equal(t, "seq1f1b slices=3", plan.Name)
	require.Equal(t, "rank 0:\n"+
		"x 3 +1: 0F0\nx 99999 +3: 0F3 0B2 0F4 0B1 0F5 0B0\nx 1 +0: 0F300000 0B299999 0B299998 0B299997 0B300000\n"+
		"rank 1:\n"+
		"x 2 +1: 1F0\nx 99999 +3: 1F2 1B2 1F3 1B1 1F4 1B0\nx 1 +0: 1F299999 1B299999 1F300000 1B299998 1B299997 1B300000", segmented(t, plan))

	// With one slice per sequence, it is 1F1B.
	p := schedule.Params{Placement: schedule.Looped(3, 3), Microbatches: 9}
	plan = plantest.Made(t, schedule.Seq1F1B, p)
	require.Zero(t, plan.Slices)
	same := plantest.Made(t, schedule.OneFOneB, p)
	require.Equal(t, same.Programs, plan.Programs)
}

func TestSeq1F1BIsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawChain(t)
		p.Slices = rapid.IntRange(0, 7).Draw(t, "slices")
		k := max(p.Slices, 1)
		plan := requireRule(t, schedule.Seq1F1B, p, func(rank int) (list []schedule.Action) {
			var backwards []int // microbatches in the order of their backwards
			for first := 0; first < p.Microbatches; first += k {
				for q := k - 1; q >= 0; q-- {
					if first+q < p.Microbatches {
						backwards = append(backwards, first+q)
					}
				}
			}
			on := p.Placement.On(rank)
			warmup := min(p.Placement.Ranks-rank-2+k, p.Microbatches)
			for i := range p.Microbatches + warmup {
				for _, s := range on {
					if i < p.Microbatches {
						list = append(list, schedule.NewAction(schedule.F, s, i))
					}
				}
				for n := range on {
					if i >= warmup {
						list = append(list, schedule.NewAction(schedule.B, on[len(on)-1-n], backwards[i-warmup]))
					}
				}
			}
			return list
		})
		require.Equal(t, p.Slices, max(plan.Slices, min(p.Slices, 1)))
	})
}

func TestSeq1F1BFigures(t *testing.T) {
	for ranks := 1; ranks <= 8; ranks++ {
		for slices := 1; slices <= 5; slices++ {
			for microbatches := 1; microbatches <= 30; microbatches++ {
				plan := plantest.Made(t, schedule.Seq1F1B, schedule.Params{Placement: schedule.Looped(ranks, ranks), Microbatches: microbatches, Slices: slices})
				end, _ := plantest.Clocks(t, plan, plantest.Ticks)
				require.Equal(t, (microbatches+ranks-1)*3, end)
				for rank, peak := range inFlight(plan) {
					require.Equal(t, min(ranks-1-rank+slices, microbatches), peak)
				}
			}
		}
	}
}

func TestSeq1F1BSaysWhatWorks(t *testing.T) {
	_, err := schedule.Seq1F1B(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: schedule.MaxMicrobatches, Slices: 1 << 23})
	require.ErrorIs(t, err, schedule.ErrParams)
	require.ErrorContains(t, err, "sequences of 8388608 slices over 2 stages take more than 16777216 actions to write out: use fewer slices")
	_, err = schedule.Seq1F1B(schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 3})
	require.ErrorContains(t, err, "seq1f1b passes through the ranks once")
}

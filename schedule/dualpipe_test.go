package schedule_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

func TestDualPipe(t *testing.T) {
	plan := plantest.Made(t, schedule.DualPipe, schedule.Params{Placement: schedule.Bidirectional(2), Microbatches: 1_000_000})
	require.Equal(t, "rank 0:\nx 1 +0: 0F0 3F500000 0F1 3B500000 3F500001& 0B0\nx 499998 +1: 0F2& 3B500001 3F500002& 0B1\n"+
		"x 1 +0: 3B999999 0I499999 0W499999\n"+
		"rank 1:\nx 1 +0: 2F500000 1F0 2F500001 1B0 1F1& 2B500000\nx 499998 +1: 2F500002& 1B1 1F2& 2B500001\n"+
		"x 1 +0: 1B499999 2I999999 2W999999", segmented(t, plan))
}

// With an odd number of ranks, both directions meet on the middle rank. With an odd number of
// microbatches, the first copy has one more.
func TestDualPipeOfOddNumbers(t *testing.T) {
	plan := plantest.Made(t, schedule.DualPipe, schedule.Params{Placement: schedule.Bidirectional(3), Microbatches: 3})
	require.Equal(t, []string{
		"0F0 0F1 5F2 5I2 5W2 0B0 0B1",
		"1F0 4F2 1F1 4B2 1B0 1B1",
		"3F2 2F0 2I0 2W0 2F1 2B1 3B2",
	}, spelled(plan))
}

func TestDualPipeIsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 9).Draw(t, "ranks")
		p := schedule.Params{
			Placement:    schedule.Bidirectional(ranks),
			Microbatches: rapid.IntRange(1, 60).Draw(t, "microbatches"),
			Mode:         schedule.Mode(rapid.IntRange(0, 1).Draw(t, "mode")),
		}
		if rapid.Bool().Draw(t, "some frozen") {
			frozen := rapid.SliceOfN(rapid.Bool(), ranks, ranks).Draw(t, "frozen")
			frozen[rapid.IntRange(0, ranks-1).Draw(t, "free")] = false
			p.Frozen = append(slices.Clone(frozen), frozen...)
		}
		requireRule(t, schedule.DualPipe, p, func(rank int) []schedule.Action {
			middle, more := (ranks+1)/2, (p.Microbatches+1)/2
			stage := [2]int{rank, 2*ranks - 1 - rank} // by phase: the rank's stage
			first, end := [2]int{0, more}, [2]int{more, p.Microbatches}
			if rank >= middle {
				slices.Reverse(stage[:])
				slices.Reverse(first[:])
				slices.Reverse(end[:])
			}
			return dualPipe(min(rank, ranks-1-rank), middle, max(more, 2*middle), stage, first, end)
		})
	})
}

// TestDualPipeFigures checks the published figures, with F = I = W and pairs that save no time: P+1 microbatches in
// flight on every rank, and a bubble of (P/2-1)(F&B+B-3W).
func TestDualPipeFigures(t *testing.T) {
	for _, ranks := range []int{2, 4, 6, 8, 16} {
		for _, microbatches := range []int{2 * ranks, 2*ranks + 2, 4 * ranks} {
			plan := plantest.Made(t, schedule.DualPipe, schedule.Params{Placement: schedule.Bidirectional(ranks), Microbatches: microbatches})
			if microbatches > 2*ranks {
				require.Equal(t, slices.Repeat([]int{ranks + 1}, ranks), inFlight(plan))
			}
			const f, b, w = 1, 2, 1
			makespan, _ := plantest.Clocks(t, plan, plantest.Ticks)
			require.Equal(t, 3*microbatches+(ranks/2-1)*(f+b+b-3*w), makespan)
		}
	}
	// An odd number of ranks has the figures of the next even number.
	for _, ranks := range []int{1, 3, 5, 7} {
		plan := plantest.Made(t, schedule.DualPipe, schedule.Params{Placement: schedule.Bidirectional(ranks), Microbatches: 4*ranks + 4})
		require.Equal(t, slices.Repeat([]int{ranks + 2}, ranks), inFlight(plan))
		makespan, _ := plantest.Clocks(t, plan, plantest.Ticks)
		require.Equal(t, 3*(4*ranks+4)+2*((ranks+1)/2-1), makespan)
	}
}

func TestDualPipeSaysWhatWorks(t *testing.T) {
	for _, placement := range []schedule.Placement{
		schedule.Wave(4, 8), schedule.Looped(4, 4), {Ranks: 4, Rank: []int{0, 1, 2, 3, 0, 1, 2, 3}, Copies: 2},
		{Ranks: 4, Rank: []int{0, 1, 2, 3, 3, 2, 1, 0, 0, 1, 2, 3}, Copies: 3},
	} {
		_, err := schedule.DualPipe(schedule.Params{Placement: placement, Microbatches: 9})
		require.ErrorIs(t, err, schedule.ErrParams)
		require.ErrorContains(t, err, "dualpipe runs two copies of a model in opposite directions, each with one stage per rank: place them as Bidirectional(4) does")
	}
}

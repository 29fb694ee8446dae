package schedule_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
)

// pyTorchDualPipeV holds the orders that PyTorch's tests expect
// (test/distributed/pipelining/artifacts/dualpipev_4rank_10mb.csv).
var pyTorchDualPipeV = []string{
	"0F0 0F1 0F2 0F3 0F4 0F5 0F6 7F0 7I0 7W0 7F1 7I1 7W1 7F2 7I2 7W2 7F3 (0F7;7B3) (7F4;0B0) (0F8;7B4) (7F5;0B1) (0F9;7B5) " +
		"(7F6;0B2) 7B6 (7F7;0B3) 7B7 (7F8;0B4) 7B8 (7F9;0B5) 7B9 0I6 0W6 0I7 0W7 0I8 0W8 0I9 0W9",
	"1F0 1F1 1F2 1F3 1F4 6F0 1F5 6F1 6I0 6W0 6F2 6I1 6W1 6F3 (1F6;6B2) (6F4;1B0) (1F7;6B3) (6F5;1B1) (1F8;6B4) (6F6;1B2) " +
		"(1F9;6B5) (6F7;1B3) 6B6 (6F8;1B4) 6B7 (6F9;1B5) 6B8 1B6 6I9 1I7 6W9 1I8 1W7 1I9 1W8 1W9",
	"2F0 2F1 2F2 5F0 2F3 5F1 2F4 5F2 5I0 5W0 5F3 (2F5;5B1) (5F4;2B0) (2F6;5B2) (5F5;2B1) (2F7;5B3) (5F6;2B2) (2F8;5B4) " +
		"(5F7;2B3) (2F9;5B5) (5F8;2B4) 5B6 (5F9;2B5) 5B7 2B6 5B8 2I7 5I9 2I8 2W7 2I9 5W9 2W8 2W9",
	"3F0 4F0 3F1 4F1 3F2 4F2 3F3 4F3 3F4 4B0 (4F4;3B0) (3F5;4B1) (4F5;3B1) (3F6;4B2) (4F6;3B2) (3F7;4B3) (4F7;3B3) (3F8;4B4) " +
		"(4F8;3B4) (3F9;4B5) (4F9;3B5) 4B6 3B6 4B7 3B7 4I8 3I8 4I9 3I9 4W8 3W8 4W9 3W9",
}

func TestDualPipeVIsPyTorchs(t *testing.T) {
	plan := plantest.Made(t, schedule.DualPipeV, schedule.Params{Placement: schedule.Wave(4, 8), Microbatches: 10})
	require.Equal(t, pyTorchDualPipeV, spelled(plan))
}

func TestDualPipeV(t *testing.T) {
	plan := plantest.Made(t, schedule.DualPipeV, schedule.Params{Placement: schedule.Wave(3, 6), Microbatches: 1_000_000})
	require.Equal(t, "rank 0:\nx 5 +1: 0F0\nx 1 +0: 5F0\nx 2 +1: 5I0 5W0 5F1\nx 999995 +1: 0F5& 5B2 5F3& 0B0\n"+
		"x 2 +1: 5B999997 5F999998& 0B999995\nx 1 +0: 5B999999 0I999997 0W999997 0I999998 0W999998 0I999999 0W999999\n"+
		"rank 1:\nx 2 +1: 1F0\nx 2 +1: 1F2 4F0\nx 1 +0: 4I0 4W0 4F2\nx 999996 +1: 1F4& 4B1 4F3& 1B0\n"+
		"x 1 +0: 4B999997 4F999999& 1B999996 4B999998 1B999997 4I999999 1I999998 4W999999 1I999999 1W999998\n  1W999999\n"+
		"rank 2:\nx 3 +1: 2F0 3F0\nx 1 +0: 2F3 3B0 3F3& 2B0\nx 999996 +1: 2F4& 3B1 3F4& 2B1\n"+
		"x 1 +0: 3B999997 2B999997 3B999998 2I999998 3I999999 2I999999 2W999998 3W999999 2W999999", segmented(t, plan))

	// With fewer microbatches than the rule needs, the remaining half of a pair runs alone.
	plan = plantest.Made(t, schedule.DualPipeV, schedule.Params{Placement: schedule.Wave(2, 4), Microbatches: 2})
	require.Equal(t, []string{"0F0 0F1 3F0 3I0 3W0 3F1 3B1 0B0 0B1", "1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1"}, spelled(plan))
}

func TestDualPipeVIsItsRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawV(t)
		ranks := p.Placement.Ranks
		requireRule(t, schedule.DualPipeV, p, func(rank int) []schedule.Action {
			return dualPipe(rank, ranks, max(p.Microbatches, 2*ranks), [2]int{rank, 2*ranks - 1 - rank}, [2]int{}, [2]int{p.Microbatches, p.Microbatches})
		})
	})
}

// dualPipe returns the actions of a rank in the order of DeepSeek's step: chunks run through two phases, and pending
// weight gradients wait in a queue. The microbatches of each phase are numbered from first, and those from end on are
// removed.
func dualPipe(rank, ranks, chunks int, stage, first, end [2]int) []schedule.Action {
	var list []schedule.Action
	var forwards, backwards [2]int
	var queue []schedule.Action
	forward := func(phase int) {
		list = append(list, schedule.NewAction(schedule.F, stage[phase], first[phase]+forwards[phase]))
		forwards[phase]++
	}
	backward := func(phase int, zeroBubble bool) {
		mb := first[phase] + backwards[phase]
		backwards[phase]++
		if !zeroBubble {
			list = append(list, schedule.NewAction(schedule.B, stage[phase], mb))
			return
		}
		list = append(list, schedule.NewAction(schedule.I, stage[phase], mb))
		queue = append(queue, schedule.NewAction(schedule.W, stage[phase], mb))
	}
	weight := func() {
		list = append(list, queue[0])
		queue = queue[1:]
	}
	overlapped := func(phase int) {
		forward(phase)
		list[len(list)-1] = list[len(list)-1].WithJoin(true)
		backward(1-phase, false)
	}

	for range (ranks - rank - 1) * 2 {
		forward(0)
	}
	for range rank + 1 {
		forward(0)
		forward(1)
	}
	for range ranks - rank - 1 {
		backward(1, true)
		weight()
		forward(1)
	}
	for i := range chunks - ranks*2 + rank + 1 {
		if i == 0 && rank == ranks-1 {
			forward(0)
			backward(1, false)
		} else {
			overlapped(0)
		}
		overlapped(1)
	}
	for range ranks - rank - 1 {
		backward(1, false)
		overlapped(1)
	}
	zeroBubble := false
	for i := range rank + 1 {
		if i == (rank+1)/2 && rank%2 == 1 {
			zeroBubble = true
		}
		backward(1, zeroBubble)
		if i == (rank+1)/2 && rank%2 == 0 {
			zeroBubble = true
		}
		backward(0, zeroBubble)
	}
	for range ranks - rank - 1 {
		weight()
		backward(0, true)
	}
	for range rank + 1 {
		weight()
	}

	var there []schedule.Action
	for i, a := range list {
		phase := slices.Index(stage[:], a.Stage())
		if a.Microbatch() < end[phase] {
			there = append(there, a)
		} else if i > 0 && list[i-1].Joined() && len(there) > 0 {
			there[len(there)-1] = there[len(there)-1].WithJoin(false)
		}
	}
	return there
}

// TestDualPipeVFigures checks the published figures, with F = I = W and pairs that save no time: PP+1
// microbatches in flight on every rank, counting each stage separately, and a bubble of (PP/2-1)(F&B+B-3W), where PP is
// the number of stages.
func TestDualPipeVFigures(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4, 5, 8, 16} {
		for _, microbatches := range []int{2 * ranks, 2*ranks + 1, 4 * ranks} {
			plan := plantest.Made(t, schedule.DualPipeV, schedule.Params{Placement: schedule.Wave(ranks, 2*ranks), Microbatches: microbatches})
			if microbatches > 2*ranks {
				require.Equal(t, slices.Repeat([]int{2*ranks + 1}, ranks), inFlight(plan))
			}
			const f, b, w = 1, 2, 1
			makespan, _ := plantest.Clocks(t, plan, plantest.Ticks)
			require.Equal(t, 6*microbatches+(ranks-1)*(f+b+b-3*w), makespan)
		}
	}
}

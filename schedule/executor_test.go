package schedule_test

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/plantest"
)

// The executor runs compute plans in the plainest way, to say of an order whether it
// works and what it comes to.

// execute lets every rank take its list in order, an action as soon as what it needs
// is done. It returns when the last action ends, and an error where no rank can go on.
func execute(p *schedule.Plan, ticks func(schedule.Action) int) (end int, err error) {
	lists := make([][]schedule.Action, len(p.Programs))
	inputOnly := map[plantest.Cell]bool{}
	left := 0
	for rank := range lists {
		for a := range p.All(rank) {
			lists[rank] = append(lists[rank], a.WithJoin(false))
			left++
			if a.Kind() == schedule.I {
				inputOnly[plantest.Cell{Stage: a.Stage(), Mb: a.Microbatch()}] = true
			}
		}
	}
	backward := func(stage, mb int) schedule.Action {
		if inputOnly[plantest.Cell{Stage: stage, Mb: mb}] {
			return schedule.Act(schedule.I, stage, mb)
		}
		return schedule.Act(schedule.B, stage, mb)
	}
	done := map[schedule.Action]int{} // when
	free := make([]int, len(lists))
	for left > 0 {
		before := left
		for rank := range lists {
			for len(lists[rank]) > 0 {
				a := lists[rank][0]
				start, ready := free[rank], true
				for _, need := range plantest.Needs(p, a, backward) {
					at, ok := done[need]
					start, ready = max(start, at), ready && ok
				}
				if !ready {
					break
				}
				free[rank] = start + ticks(a)
				done[a] = free[rank]
				end = max(end, free[rank])
				lists[rank] = lists[rank][1:]
				left--
			}
		}
		if left == before {
			for rank, list := range lists {
				if len(list) > 0 {
					err = fmt.Errorf("rank %d stands before %v; %w", rank, list[0], err)
				}
			}
			return 0, err
		}
	}
	return end, nil
}

// inFlight returns by rank how many microbatches are in flight at most, counted stage
// by stage: from the forward to the full backward or the weight gradient.
func inFlight(p *schedule.Plan) []int {
	peaks := make([]int, len(p.Programs))
	for rank := range peaks {
		held := 0
		for a := range p.All(rank) {
			switch {
			case !p.HasBackward(a.Stage()):
			case a.Kind() == schedule.F:
				held++
			case a.Kind() == schedule.B, a.Kind() == schedule.W, a.Kind() == schedule.I && len(p.Frozen) > 0 && p.Frozen[a.Stage()]:
				held--
			}
			peaks[rank] = max(peaks[rank], held)
		}
	}
	return peaks
}

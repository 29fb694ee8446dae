package plantest

import "slices"
import "github.com/weir-ml/weir/schedule"

// Ticks are the costs that the rules assume: a full backward takes as long as its two
// halves, and a forward as long as each half.
func Ticks(a schedule.Action) int {
	if a.Kind() == schedule.B {
		return 2
	}
	return 1
}

// Needs returns the actions that a computation waits for. The function backward returns the
// action that computes the gradient of a stage's input.
func Needs(p *schedule.Plan, a schedule.Action, backward func(stage, mb int) schedule.Action) (list []schedule.Action) {
	stage, mb := a.Stage(), a.Microbatch()
	slices := max(p.Slices, 1)
	switch a.Kind() {
	case schedule.F:
		if !p.Placement.First(stage) {
			list = append(list, schedule.Act(schedule.F, stage-1, mb))
		}
		if mb%slices != 0 {
			list = append(list, schedule.Act(schedule.F, stage, mb-1))
		}
	case schedule.B, schedule.I:
		list = append(list, schedule.Act(schedule.F, stage, mb))
		if !p.Placement.Last(stage) {
			list = append(list, backward(stage+1, mb))
		}
		if (mb+1)%slices != 0 && mb+1 < p.Microbatches {
			list = append(list, backward(stage, mb+1))
		}
	case schedule.W:
		list = append(list, schedule.Act(schedule.I, stage, mb))
	}
	return list
}

// Lists returns the actions of each rank.
func Lists(p *schedule.Plan) [][]schedule.Action {
	var lists [][]schedule.Action
	for rank := range p.Programs {
		lists = append(lists, slices.Collect(p.All(rank)))
	}
	return lists
}

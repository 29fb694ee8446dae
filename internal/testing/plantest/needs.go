package plantest

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// Ticks returns the cost of an action that the rules assume: 2 for B, and 1 for F, I and W.
func Ticks(a schedule.Action) int {
	if a.Kind() == schedule.B {
		return 2
	}
	return 1
}

// Needs returns the actions that a computation, a send or a wait needs, in a plan without transfers. The
// function backward returns the action that computes the gradient of a stage's input.
func Needs(p *schedule.Plan, a schedule.Action, backward func(stage, mb int) schedule.Action) (list []schedule.Action) {
	stage, mb := a.Stage(), a.Microbatch()
	depth, slices := depth(p), max(p.Slices, 1)
	switch a.Kind() {
	case schedule.F:
		if stage%depth != 0 {
			list = append(list, schedule.NewAction(schedule.F, stage-1, mb))
		}
		if mb%slices != 0 && passes(p, stage, mb-1) {
			list = append(list, schedule.NewAction(schedule.F, stage, mb-1))
		}
	case schedule.B, schedule.I:
		list = append(list, schedule.NewAction(schedule.F, stage, mb))
		if (stage+1)%depth != 0 {
			list = append(list, backward(stage+1, mb))
		}
		if (mb+1)%slices != 0 && passes(p, stage, mb+1) {
			list = append(list, backward(stage, mb+1))
		}
	case schedule.W:
		list = append(list, schedule.NewAction(schedule.I, stage, mb))
	case schedule.SendF:
		list = append(list, schedule.NewAction(schedule.F, stage, mb))
	case schedule.SendB:
		list = append(list, backward(stage, mb))
	case schedule.WaitF:
		list = append(list, schedule.NewAction(schedule.SendF, stage, mb))
	case schedule.WaitB:
		list = append(list, schedule.NewAction(schedule.SendB, stage, mb))
	}
	return list
}

// depth returns the number of stages of a copy of the model. Like passes, it is independent of the
// methods of package schedule.
func depth(p *schedule.Plan) int { return len(p.Placement.Rank) / max(1, p.Placement.Copies) }

func frozen(p *schedule.Plan, stage int) bool { return len(p.Frozen) > 0 && p.Frozen[stage] }

// backward reports whether the stage or an earlier one of its copy of the model trains.
func backward(p *schedule.Plan, stage int) bool {
	for s := stage - stage%depth(p); s <= stage; s++ {
		if p.Mode == schedule.Training && !frozen(p, s) {
			return true
		}
	}
	return false
}

// passes reports whether the microbatch runs through the stage.
func passes(p *schedule.Plan, stage, mb int) bool {
	copies := max(1, p.Placement.Copies)
	of, end := 0, 0
	for c := range copies {
		end += p.Microbatches / copies
		if c < p.Microbatches%copies {
			end++
		}
		if mb < end {
			of = c
			break
		}
	}
	return mb < p.Microbatches && stage/depth(p) == of
}

// Lists returns the actions of each rank.
func Lists(p *schedule.Plan) [][]schedule.Action {
	var lists [][]schedule.Action
	for rank := range p.Programs {
		lists = append(lists, slices.Collect(p.All(rank)))
	}
	return lists
}

// Expand returns the plan with one segment per rank and all repeats unrolled.
func Expand(p *schedule.Plan) *schedule.Plan {
	flat := *p
	flat.Programs = listed(Lists(p))
	return &flat
}

// listed returns programs of one segment each, or without segments for empty lists.
func listed(lists [][]schedule.Action) [][]schedule.Segment {
	programs := make([][]schedule.Segment, len(lists))
	for rank, list := range lists {
		if len(list) > 0 {
			programs[rank] = []schedule.Segment{{Body: list, Repeat: 1}}
		}
	}
	return programs
}

package stagetest

import "github.com/weir-ml/weir/schedule"

// descending runs the forwards of a stage in descending order of microbatches, and the
// backwards ascending, as breadth first does (L9).
func descending(p schedule.Params) (*schedule.Plan, error) {
	plan, err := schedule.BreadthFirst(p)
	if err != nil {
		return nil, err
	}
	program := plan.Programs[0]
	for i, segment := range program {
		if segment.Body[0].Kind() == schedule.F {
			program[i] = schedule.Segment{
				Body:   []schedule.Action{schedule.Act(schedule.F, segment.Body[0].Stage(), p.Microbatches-1)},
				Repeat: p.Microbatches, Stride: -1,
			}
		}
	}
	plan.Name = "descending forwards"
	return plan, nil
}

// apart returns the depth-first rule with I and W instead of B on one stage. Each W comes after
// its I and lag further ones, directly before the next, or at the end.
func apart(stage, lag int) schedule.Rule {
	return func(p schedule.Params) (*schedule.Plan, error) {
		plan, err := schedule.DepthFirst(p)
		if err != nil {
			return nil, err
		}
		var list, pending []schedule.Action
		for action := range plan.All(0) {
			if action.Stage() != stage || action.Kind() != schedule.B {
				list = append(list, action)
				continue
			}
			if len(pending) > 0 && len(pending) == lag {
				list, pending = append(list, pending[0]), pending[1:]
			}
			list = append(list, schedule.Act(schedule.I, stage, action.Microbatch()))
			pending = append(pending, schedule.Act(schedule.W, stage, action.Microbatch()))
			if lag == 0 {
				list, pending = append(list, pending...), nil
			}
		}
		plan.Programs[0] = []schedule.Segment{{Body: append(list, pending...), Repeat: 1}}
		plan.Name = "depth-first with I and W apart"
		return plan, nil
	}
}

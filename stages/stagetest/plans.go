package stagetest

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// descending is BreadthFirst with the forwards of each stage in descending order of microbatches;
// the backwards still ascend. The numbers must not change (L9).
func descending(p schedule.Params) (*schedule.Plan, error) {
	plan, err := schedule.BreadthFirst(p)
	if err != nil {
		return nil, err
	}
	program := plan.Programs[0]
	for i, segment := range program {
		if segment.Body[0].Kind() == schedule.F {
			program[i] = schedule.Segment{
				Body:   []schedule.Action{schedule.NewAction(schedule.F, segment.Body[0].Stage(), p.Microbatches-1)},
				Repeat: p.Microbatches, Stride: -1,
			}
		}
	}
	plan.Name = "descending forwards"
	return plan, nil
}

// SplitRule returns a rule for one rank that replaces every B of another rule, or only those of
// the given stages, by I and W. A W runs after its own I and lag further I's of the stage;
// the remaining W's run at the end. Plans that do not train stay as they are.
func SplitRule(rule schedule.Rule, lag int, stages ...int) schedule.Rule {
	return func(p schedule.Params) (*schedule.Plan, error) {
		plan, err := rule(p)
		if err != nil || p.Mode != schedule.Training {
			return plan, err
		}
		var list []schedule.Action
		late := make([][]schedule.Action, p.Placement.Stages())
		for action := range plan.All(0) {
			s := action.Stage()
			if action.Kind() != schedule.B || stages != nil && !slices.Contains(stages, s) {
				list = append(list, action)
				continue
			}
			list = append(list, schedule.NewAction(schedule.I, s, action.Microbatch()))
			late[s] = append(late[s], schedule.NewAction(schedule.W, s, action.Microbatch()))
			if len(late[s]) > lag {
				list, late[s] = append(list, late[s][0]), late[s][1:]
			}
		}
		for _, rest := range late {
			list = append(list, rest...)
		}
		split := *plan
		split.Programs = [][]schedule.Segment{{{Body: list, Repeat: 1}}}
		return &split, nil
	}
}

package lower

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// Reduce returns a plan that reduces the gradients of each stage over the replicas (REDUCE_GRAD)
// immediately after the last B or W of the stage, or after the joined pair that contains it. It
// skips stages without weight gradients. If the plan already reduces gradients, the error wraps
// ErrParams. The result has no drops. The cost depends on the size of the plan's segments.
func Reduce(plan *schedule.Plan) (*schedule.Plan, error) {
	reduced := withoutDrops(plan).Flat()
	for rank, program := range reduced.Programs {
		done := map[int]bool{}      // stages whose last weight gradient was visited
		var list []schedule.Segment // from the end
		for _, s := range slices.Backward(program) {
			if i := slices.IndexFunc(s.Body, func(a schedule.Action) bool { return a.Kind() == schedule.ReduceGrad }); i >= 0 {
				return nil, fmt.Errorf("%w: plan %q already has %v: use the plan without reductions", schedule.ErrParams, plan.Name, s.Body[i])
			}
			most, last := cut(s, s.Repeat-1)
			if body := reducing(last[0].Body, done); len(body) > len(s.Body) {
				list = append(append(list, schedule.Segment{Body: body, Repeat: 1}), most...)
			} else {
				list = append(list, s)
			}
		}
		slices.Reverse(list)
		reduced.Programs[rank] = list
	}
	return reduced, nil
}

// reducing returns the actions with a reduction after the last weight gradient of each stage that
// is not in done, and adds these stages to done.
func reducing(body []schedule.Action, done map[int]bool) []schedule.Action {
	var list, after []schedule.Action // from the end
	for i, a := range slices.Backward(body) {
		if kind := a.Kind(); (kind == schedule.B || kind == schedule.W) && !done[a.Stage()] {
			done[a.Stage()] = true
			after = append(after, schedule.Act(schedule.ReduceGrad, a.Stage(), 0))
		}
		if i > 0 && body[i-1].Joined() {
			continue
		}
		list = append(list, after...)
		after = after[:0]
		if a.Joined() {
			list = append(list, body[i+1])
		}
		list = append(list, a)
	}
	slices.Reverse(list)
	return list
}

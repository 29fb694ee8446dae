package lower

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// Reduce returns a plan that reduces the gradients of each stage over the replicas (REDUCE_GRAD)
// immediately after the last B or W of the stage, or after the joined pair that contains it. If the
// placement has copies of the model, a rank reduces the stages nearest to the loss first. Reduce skips
// stages without weight gradients.
//
// From level [schedule.ShardGradients] on, a rank keeps only its shard of the reduced gradients. The whole
// gradients begin before the first B or W of the stage (ZERO_GRAD). They end when their reduction is
// complete (WAIT_REDUCE), immediately before the next REDUCE_GRAD of the rank or at the end of its
// program, so that the reduction overlaps with the actions before that.
//
// If the plan already reduces gradients, or the level is unknown, the error wraps ErrParams. The
// result has no drops. The cost depends on the size of the plan's segments.
func Reduce(plan *schedule.Plan, level int) (*schedule.Plan, error) {
	if level < 0 || level > schedule.ShardWeights {
		return nil, fmt.Errorf("%w: shard level %d: use 0 to %d", schedule.ErrParams, level, schedule.ShardWeights)
	}
	reduced := withoutDrops(plan).Flat()
	for rank, program := range reduced.Programs {
		done := map[int]bool{}      // stages whose last weight gradient was visited
		var list []schedule.Segment // from the end
		for _, s := range slices.Backward(program) {
			if i := slices.IndexFunc(s.Body, func(a schedule.Action) bool { return reductions>>a.Kind()&1 == 1 }); i >= 0 {
				return nil, fmt.Errorf("%w: plan %q already has %v: use the plan without reductions", schedule.ErrParams, plan.Name, s.Body[i])
			}
			before, last := cut(s, s.Repeat-1)
			if body := withReductions(last[0].Body, done); len(body) > len(s.Body) {
				list = append(append(list, schedule.Segment{Body: body, Repeat: 1}), before...)
			} else {
				list = append(list, s)
			}
		}
		slices.Reverse(list)
		if plan.Placement.Copies > 1 {
			reduceInOrder(list, plan.Placement.Depth())
		}
		if level >= schedule.ShardGradients {
			list = withAccumulators(list)
		}
		reduced.Programs[rank] = list
	}
	return reduced, nil
}

// reduceInOrder sorts the reductions of a rank: a stage is reduced after all stages that are nearer to
// the loss in their copies of the model. Otherwise the order would depend on the number of
// microbatches, and replicas with different numbers of microbatches need the same order.
func reduceInOrder(program []schedule.Segment, depth int) {
	var order []schedule.Action
	for a := range schedule.Written(program) {
		if a.Kind() == schedule.ReduceGrad {
			order = append(order, a)
		}
	}
	slices.SortStableFunc(order, func(a, b schedule.Action) int { return b.Stage()%depth - a.Stage()%depth })
	ready := map[schedule.Action]bool{}
	for i := range program {
		var body []schedule.Action
		for _, a := range program[i].Body {
			if a.Kind() != schedule.ReduceGrad {
				body = append(body, a)
				continue
			}
			for ready[a] = true; len(order) > 0 && ready[order[0]]; order = order[1:] {
				body = append(body, order[0])
			}
		}
		program[i].Body = body
	}
}

// reductions is the set of kinds that Reduce adds.
const reductions = 1<<schedule.ReduceGrad | 1<<schedule.ZeroGrad | 1<<schedule.WaitReduce

// withAccumulators returns a program, which reduces each stage once, with ZERO_GRAD and WAIT_REDUCE.
func withAccumulators(program []schedule.Segment) (list []schedule.Segment) {
	begun := map[int]bool{}     // stages whose first weight gradient was visited
	var waits []schedule.Action // for the reduction in progress
	for _, s := range program {
		first, rest := cut(s, 1)
		var body []schedule.Action
		for i, a := range first[0].Body {
			if (a.Kind() == schedule.B || a.Kind() == schedule.W) && !begun[a.Stage()] {
				begun[a.Stage()] = true
				at := len(body)
				if i > 0 && first[0].Body[i-1].Joined() {
					at--
				}
				body = slices.Insert(body, at, schedule.Act(schedule.ZeroGrad, a.Stage(), 0))
			}
			if a.Kind() == schedule.ReduceGrad { // the segment runs once
				body = append(body, waits...)
				waits = append(waits[:0], schedule.Act(schedule.WaitReduce, a.Stage(), 0))
			}
			body = append(body, a)
		}
		if len(body) > len(s.Body) {
			list = append(append(list, schedule.Segment{Body: body, Repeat: 1}), rest...)
		} else {
			list = append(list, s)
		}
	}
	if last := len(list) - 1; len(waits) > 0 && list[last].Repeat == 1 {
		list[last].Body = slices.Concat(list[last].Body, waits)
	} else if len(waits) > 0 {
		list = append(list, schedule.Segment{Body: waits, Repeat: 1})
	}
	return list
}

// withReductions returns the actions with a reduction after the last weight gradient of each stage
// that is not in done, and adds these stages to done.
func withReductions(body []schedule.Action, done map[int]bool) []schedule.Action {
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

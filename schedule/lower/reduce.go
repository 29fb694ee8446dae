package lower

import (
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// Reduce returns a plan that reduces the gradients of each stage over the replicas (REDUCE_GRAD)
// immediately after the last B or W of the stage, or after the joined pair that contains it. If the
// placement has copies of the model, a rank reduces the stages nearest to the loss first. Reduce skips
// stages without weight gradients.
//
// At level [schedule.ShardGradients] and above, a rank keeps only its shard of the reduced gradients.
// The whole gradients are allocated before the first B or W of the stage (ZERO_GRAD). They are freed
// when their reduction is complete (WAIT_REDUCE), immediately before the rank's next REDUCE_GRAD or at
// the end of its program, so that the reduction overlaps with the actions in between.
//
// If the plan already reduces gradients, or the level is unknown, the error wraps ErrParams. The
// result has no drops. The cost depends on the size of the plan's segments.
func Reduce(plan *schedule.Plan, level int) (*schedule.Plan, error) {
	if level < 0 || level > schedule.ShardWeights {
		return nil, diagnostic.Errorf(schedule.ErrParams, "shard level %d: use 0 to %d", level, schedule.ShardWeights)
	}
	reduced := withoutDrops(plan).Flat()
	for rank, program := range reduced.Programs {
		for a := range schedule.StaticActions(program) {
			if k := a.Kind(); k == schedule.ReduceGrad || k == schedule.ZeroGrad || k == schedule.WaitReduce {
				return nil, diagnostic.Errorf(schedule.ErrParams, "plan %q already has %v: use the plan without reductions", plan.Name, a)
			}
		}
		// In reverse, a reduction comes before the first B or W.
		list := passes.Backwards(beforeGradients(passes.Backwards(program), schedule.ReduceGrad, func(body []schedule.Action, i int) bool {
			return body[i].Joined()
		}))
		if plan.Placement.Copies > 1 {
			reduceInOrder(list, plan.Placement.Depth())
		}
		if level >= schedule.ShardGradients {
			list = withWaits(beforeGradients(list, schedule.ZeroGrad, func(body []schedule.Action, i int) bool {
				return i > 0 && body[i-1].Joined()
			}))
		}
		reduced.Programs[rank] = list
	}
	return reduced, nil
}

// beforeGradients returns the program with an action of the kind inserted before the first B or W of
// each stage, or before the joined pair that contains it. second reports whether an action is the
// second of a pair.
func beforeGradients(program []schedule.Segment, kind schedule.Kind, second func(body []schedule.Action, i int) bool) []schedule.Segment {
	begun := map[int]bool{} // stages whose first B or W was visited
	return firstRepeats(program, func(body []schedule.Action) (list []schedule.Action) {
		for i, a := range body {
			if (a.Kind() == schedule.B || a.Kind() == schedule.W) && !begun[a.Stage()] {
				begun[a.Stage()] = true
				at := len(list)
				if second(body, i) {
					at--
				}
				list = slices.Insert(list, at, schedule.NewAction(kind, a.Stage(), 0))
			}
			list = append(list, a)
		}
		return list
	})
}

// reduceInOrder sorts the reductions of a rank, so that a stage is reduced after all stages that are
// nearer to the loss in their copies of the model. Otherwise the order would depend on the number of
// microbatches, but replicas with different numbers of microbatches need the same order.
func reduceInOrder(program []schedule.Segment, depth int) {
	var order []schedule.Action
	for a := range schedule.StaticActions(program) {
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

// withWaits adds a WAIT_REDUCE for each reduction to a program that reduces each stage once.
func withWaits(program []schedule.Segment) []schedule.Segment {
	var waits []schedule.Action // the wait for the reduction in progress, if any
	list := firstRepeats(program, func(body []schedule.Action) (list []schedule.Action) {
		for _, a := range body {
			if a.Kind() == schedule.ReduceGrad { // the segment runs once
				list = append(list, waits...)
				waits = []schedule.Action{schedule.NewAction(schedule.WaitReduce, a.Stage(), 0)}
			}
			list = append(list, a)
		}
		return list
	})
	if last := len(list) - 1; len(waits) > 0 && list[last].Repeat == 1 {
		list[last].Body = slices.Concat(list[last].Body, waits)
	} else if len(waits) > 0 {
		list = append(list, schedule.Segment{Body: waits, Repeat: 1})
	}
	return list
}

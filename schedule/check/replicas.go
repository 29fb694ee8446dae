package check

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// Replicas proves that data-parallel replicas can run the given plans together. The plans must have
// the same placement. They may have different numbers of microbatches, so the total need not be a
// multiple of the number of replicas. A rank must not reduce the gradients of a stage more than once in a step,
// and all plans must have the same order of reductions: a rank takes part in one reduction at a time,
// so two replicas with different orders would wait for each other forever.
//
// Replicas requires at least one plan, and assumes that each plan is valid, which [Plan] proves. The error is
// a *Error.
func Replicas(plans ...*schedule.Plan) error {
	c := &Checker{}
	for _, plan := range plans[1:] {
		if plan.Placement.Ranks != plans[0].Placement.Ranks || !slices.Equal(plan.Placement.Rank, plans[0].Placement.Rank) {
			c.planFault(Malformed, -1, "The plans of two replicas, %q and %q, place stages differently; use one placement.", plans[0].Name, plan.Name)
			return c.Err()
		}
	}
	for rank := range plans[0].Programs {
		var first []int // the order in the first plan
		for i, plan := range plans {
			c.Name = plan.Name
			order := c.reductions(plan, rank)
			if i == 0 {
				first = order
			} else if !slices.Equal(order, first) {
				c.planFault(Reduction, rank, "Rank %d reduces gradients of stages in the order %v with %d microbatches and %v with %d, but replicas need one order; move REDUCE_GRAD, or give all replicas the same number of microbatches.",
					rank, first, plans[0].Microbatches, order, plan.Microbatches)
			}
		}
	}
	return c.Err()
}

// reductions returns the stages of a rank in the order in which a plan reduces their gradients. It
// adds a fault if a stage is reduced more than once.
func (c *Checker) reductions(plan *schedule.Plan, rank int) (order []int) {
	for _, s := range plan.Programs[rank] {
		for _, inner := range s.Inside() {
			for _, a := range inner.Body {
				if a.Kind() != schedule.ReduceGrad {
					continue
				}
				if s.Repeat*inner.Repeat > 1 || slices.Contains(order, a.Stage()) {
					c.Add(Fault{Code: Twice, Rank: rank, Position: -1, Action: a,
						Text: fmt.Sprintf("Rank %d runs %v more than once, but replicas reduce gradients once in a step; keep the one after the last B or W of the stage.", rank, a)})
				}
				if !slices.Contains(order, a.Stage()) {
					order = append(order, a.Stage())
				}
			}
		}
	}
	return order
}

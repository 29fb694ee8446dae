package check

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// Replicas proves that replicas can run these plans side by side. Their plans are of one placement
// and differ in the number of microbatches, since these need not divide evenly. Each rank reduces the
// gradients of a stage once in a step, and in the same order in every plan: a rank takes part in one
// reduction after the other, so ranks of two replicas with different orders would wait for each
// other for ever.
//
// Each plan by itself must be valid, which [Plan] proves. The error is a *Error, as that of Plan.
func Replicas(plans ...*schedule.Plan) error {
	c := &Checker{}
	for _, plan := range plans[1:] {
		if plan.Placement.Ranks != plans[0].Placement.Ranks || !slices.Equal(plan.Placement.Rank, plans[0].Placement.Rank) {
			c.planFault(Malformed, -1, "The plans of two replicas, %q and %q, place stages differently; use one placement.", plans[0].Name, plan.Name)
			return c.Err()
		}
	}
	for rank := range plans[0].Programs {
		var first []int // the order of the first plan
		for i, plan := range plans {
			c.Name = plan.Name
			order := c.reductions(plan, rank)
			if i == 0 {
				first = order
			} else if !slices.Equal(order, first) {
				c.planFault(Reduction, rank, "Rank %d reduces gradients of stages in the order %v with %d microbatches and %v with %d, and replicas need one order; move REDUCE_GRAD, or give all replicas as many microbatches.",
					rank, first, plans[0].Microbatches, order, plan.Microbatches)
			}
		}
	}
	return c.Err()
}

// reductions returns the stages of a rank in the order in which a plan reduces them. It adds a fault
// for those that are reduced more than once.
func (c *Checker) reductions(plan *schedule.Plan, rank int) (order []int) {
	for _, s := range plan.Programs[rank] {
		for _, inner := range s.Inside() {
			for _, a := range inner.Body {
				if a.Kind() != schedule.ReduceGrad {
					continue
				}
				if s.Repeat*inner.Repeat > 1 || slices.Contains(order, a.Stage()) {
					c.Add(Fault{Code: Twice, Rank: rank, Position: -1, Action: a,
						Text: fmt.Sprintf("Rank %d runs %v more than once, and replicas reduce gradients once in a step; keep the one after the last B or W of the stage.", rank, a)})
				}
				if !slices.Contains(order, a.Stage()) {
					order = append(order, a.Stage())
				}
			}
		}
	}
	return order
}

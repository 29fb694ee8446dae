package check

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// checkOrder proves, rank by rank, that every action comes after its dependencies on that rank;
// checkProgress proves the dependencies on other ranks. If the census has found every action in
// order, there is nothing left to check.
func (c *Checker) checkOrder() {
	if c.ordered {
		return
	}
	sets := c.Stages * passes.KindsPerStage
	v := &orderVisitor{c.walk(2*sets + c.Copies()), sets, newDemands(&c.Outline, 2*sets)}
	v.walk.Every = c.Plan.Slices
	for set, total := range c.totals {
		v.sets.Put(sets+set, total)
	}
	c.putSpans(v.sets, 2*sets)
	for rank := range c.Plan.Programs {
		if !v.run(rank, v.visit) {
			return
		}
	}
}

// orderVisitor is the visitor that checks dependencies on one rank.
type orderVisitor struct {
	rankWalk
	totals  int // the index of the first of the sets that hold all actions of the plan
	demands demands
}

// visit adds a fault for each of an action's dependencies that has not run. It ignores dependencies that
// the plan lacks, because the census has reported them. Then it marks the action as done.
func (v *orderVisitor) visit(a schedule.Action, mb int64) {
	if a.Kind() > schedule.WaitB || !v.c.allows(a.Stage(), a.Kind()) {
		return
	}
	set, d := v.c.Set(a.Stage(), a.Kind()), &v.demands
	for i := d.from[set]; i < d.from[set+1]; i++ {
		need, needed, planned := &d.list[i], mb, true
		if need.On != 0 {
			needed, planned = d.neighbour(v.sets, need, mb)
		}
		has := func(first int) bool {
			return v.sets.Has(first+int(need.set), needed) || v.sets.Has(first+int(need.or), needed)
		}
		if !planned || has(0) || !has(v.totals) {
			continue
		}
		kind := need.Kind
		if need.Or != schedule.None && v.sets.Has(v.totals+int(need.or), needed) {
			kind = need.Or
		}
		first := schedule.NewAction(kind, need.Stage, 0).Shift(int(needed))
		v.fault(a, mb, Order, fmt.Sprint(need.Why), "runs before %v, %s; move %v before it.", first, passes.Reasons[need.Why], first)
	}
	v.sets.Add(set, mb)
}

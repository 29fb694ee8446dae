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
	v := &orderVisitor{c: c, Walk: passes.NewWalk(&c.Outline, 2*sets+c.Copies()), totals: sets, spans: 2 * sets, needs: make([]passes.Need, 0, sets), from: make([]int, 1, sets+1)}
	v.Every = c.Plan.Slices
	for set, total := range c.totals {
		v.Put(sets+set, total)
	}
	c.putSpans(&v.Walk, v.spans)
	for set := range sets {
		v.needs = c.Needs(v.needs, set/passes.KindsPerStage, schedule.Kind(set%passes.KindsPerStage))
		v.from = append(v.from, len(v.needs))
	}
	for rank, program := range c.Plan.Programs {
		v.rank = rank
		v.Program(program, false, v)
		if c.Unproved(&v.Walk, rank) {
			return
		}
	}
	c.recordVisited(&v.Walk)
}

// orderVisitor is the visitor that checks dependencies on one rank.
type orderVisitor struct {
	passes.Walk
	c      *Checker
	rank   int
	totals int // the index of the first of the sets that hold all actions of the plan
	spans  int // the set of microbatches of the first copy of the model; the sets of the other copies follow

	needs []passes.Need // of all stages and kinds
	from  []int         // the needs of set i are needs[from[i]:from[i+1]]
}

func (v *orderVisitor) Repeats(*schedule.Segment, int64) {}

// Visit adds a fault for each dependency of an action that has not run, and marks the action as
// done.
func (v *orderVisitor) Visit(a schedule.Action, mb int64) {
	c, stage, kind := v.c, a.Stage(), a.Kind()
	if kind > schedule.WaitB || !c.allows(stage, kind) {
		return
	}
	set := c.Set(stage, kind)
	for i := v.from[set]; i < v.from[set+1]; i++ {
		n, of := &v.needs[i], mb
		if n.Remote {
			continue
		}
		if n.On != 0 {
			var sliced bool
			if of, sliced = c.Neighbour(mb, n.On); !sliced || !v.Has(v.spans+c.Sites[stage].Copy, of) {
				continue
			}
		}
		if !v.met(n, of) {
			v.reportEarly(a, mb, n, of)
		}
	}
	v.Add(set, mb)
}

// met reports whether a dependency is done, or is not in the plan, which the census has reported.
func (v *orderVisitor) met(n *passes.Need, mb int64) bool {
	has := func(first int, kind schedule.Kind) bool {
		return kind != schedule.None && v.Has(first+v.c.Set(n.Stage, kind), mb)
	}
	return has(0, n.Kind) || has(0, n.Or) || !has(v.totals, n.Kind) && !has(v.totals, n.Or)
}

// reportEarly adds a fault for an action that runs before its dependency.
func (v *orderVisitor) reportEarly(a schedule.Action, mb int64, n *passes.Need, of int64) {
	kind := n.Kind
	if n.Or != schedule.None && v.Has(v.totals+v.c.Set(n.Stage, n.Or), of) {
		kind = n.Or
	}
	first := schedule.Act(kind, n.Stage, 0).Shift(int(of))
	v.c.faultAt(&v.Walk, v.rank, a, mb, Order, fmt.Sprint(n.Why), "runs before %v, %s; move %v before it.", first, passes.Reasons[n.Why], first)
}

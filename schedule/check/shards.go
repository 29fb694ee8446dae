package check

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// checkSharding proves, rank by rank, that the weights of a stage are gathered when it computes and
// that its gradients are reduced when they are complete.
//
// If a plan gathers the weights of a stage (UNSHARD) or releases them (RESHARD), the stage may compute
// only between the two, and all weights must be released at the end. A plan may gather weights any
// number of times, and may reduce the gradients of a stage (REDUCE_GRAD) several times. Between two
// reductions, and before the first, an action must add to the gradients, and the last reduction must
// come after the last B or W. If the plan has ZERO_GRAD and WAIT_REDUCE, which allocate and free whole
// gradients, each B and W must come between its stage's ZERO_GRAD and REDUCE_GRAD, and the WAIT_REDUCE
// must come after the REDUCE_GRAD.
//
// If a plan for PyTorch has waits, each REDUCE_GRAD needs its WAIT_REDUCE, and a rank waits for one
// reduction before it starts the next one.
func (c *Checker) checkSharding() {
	for rank, stages := range c.On {
		v := &shardVisitor{c.walk(flagsOfShards * len(stages)), make([]location, len(stages))}
		if (c.Reduces && len(stages) > 0 || slices.ContainsFunc(stages, v.shards)) && v.run(rank, v.visit) {
			v.checkEnd()
		}
	}
}

// shardVisitor is the visitor that tracks weights and gradients on a rank. Its sets are the flags
// below, for each of the rank's stages.
type shardVisitor struct {
	rankWalk
	first []location // by the rank's stages: the first action that added to the gradients since their last reduction
}

// The flags for each of the rank's stages.
const (
	weightsGathered   = iota
	gradientUnreduced // an action has added to the gradients since their last reduction
	gradientWhole     // the rank is between ZERO_GRAD and WAIT_REDUCE
	gradientReducing  // the rank is between REDUCE_GRAD and WAIT_REDUCE, or the plan has no WAIT_REDUCE
	flagsOfShards     = iota
)

// shards reports whether the plan gathers or releases the weights of the stage.
func (v *shardVisitor) shards(stage int) bool {
	return v.c.Includes(stage, schedule.Unshard) || v.c.Includes(stage, schedule.Reshard)
}

func (v *shardVisitor) visit(a schedule.Action, mb int64) {
	c, stage, kind := v.c, a.Stage(), a.Kind()
	flags := flagsOfShards * c.Place[stage]
	if kind.OfStage() && !c.allows(stage, kind) {
		return
	}
	switch kind {
	case schedule.Unshard:
		if !v.sets.Raise(flags + weightsGathered) {
			v.fault(a, mb, Sharding, "", "gathers weights that are already gathered; remove it, or put a RESHARD before it.")
		}
	case schedule.Reshard:
		if !v.sets.Lower(flags + weightsGathered) {
			v.fault(a, mb, Sharding, "", "releases weights that are not gathered; remove it, or put an UNSHARD before it.")
		}
	case schedule.ReduceGrad:
		if !v.sets.Lower(flags + gradientUnreduced) {
			v.fault(a, mb, Reduction, "", "reduces gradients that have not changed since the previous reduction; remove it.")
		}
		for i, other := range c.On[v.rank] {
			if c.Retires && v.sets.Raised(flagsOfShards*i+gradientReducing) {
				v.fault(a, mb, Reduction, "pending", "starts a reduction before the rank has waited for that of stage %d; put %v before it.", other, schedule.NewAction(schedule.WaitReduce, other, 0))
			}
		}
		v.sets.Raise(flags + gradientReducing)
	case schedule.ZeroGrad:
		if !v.sets.Raise(flags + gradientWhole) {
			v.fault(a, mb, Reduction, "", "allocates whole gradients that exist already; remove it, or put %v before it.", schedule.NewAction(schedule.WaitReduce, stage, 0))
		}
	case schedule.WaitReduce:
		if !v.sets.Lower(flags + gradientReducing) {
			v.fault(a, mb, Reduction, "", "waits for a reduction that has not started; put %v before it, or remove it.", schedule.NewAction(schedule.ReduceGrad, stage, 0))
		}
		v.sets.Lower(flags + gradientWhole)
	case schedule.F, schedule.B, schedule.I, schedule.W, schedule.Quantize:
		if v.shards(stage) && !v.sets.Raised(flags+weightsGathered) {
			v.fault(a, mb, Sharding, "", "computes with weights that are not gathered; put an UNSHARD of stage %d before it, and its RESHARD after it.", stage)
		}
	}
	if kind != schedule.B && kind != schedule.W || !c.Reduces || !c.allows(stage, kind) {
		return
	}
	switch {
	case c.Accumulates && !v.sets.Raised(flags+gradientWhole):
		v.fault(a, mb, Reduction, "", "adds to whole gradients that do not exist; put %v before it, and %v after their reduction.",
			schedule.NewAction(schedule.ZeroGrad, stage, 0), schedule.NewAction(schedule.WaitReduce, stage, 0))
	case (c.Accumulates || c.Retires) && v.sets.Raised(flags+gradientReducing):
		v.fault(a, mb, Reduction, "", "adds to gradients while they are reduced; move %v after the last B or W of the stage.", schedule.NewAction(schedule.ReduceGrad, stage, 0))
		return
	}
	if v.sets.Raise(flags + gradientUnreduced) {
		v.first[c.Place[stage]] = v.here(a, mb)
	}
}

// checkEnd adds faults for weights that are not released and gradients that are not reduced at the
// end.
func (v *shardVisitor) checkEnd() {
	for i, stage := range v.c.On[v.rank] {
		flags := flagsOfShards * i
		if v.sets.Raised(flags + weightsGathered) {
			v.c.planFault(Sharding, v.rank, "Rank %d never releases the weights of stage %d after it last gathered them; add %v.", v.rank, stage, schedule.NewAction(schedule.Reshard, stage, 0))
		}
		switch {
		case v.sets.Raised(flags + gradientUnreduced):
			if v.c.Includes(stage, schedule.ReduceGrad) { // otherwise it is missing
				v.c.fault(v.first[i], Reduction, "", "adds to gradients after their last reduction; move %v after the last B or W of the stage.", schedule.NewAction(schedule.ReduceGrad, stage, 0))
			}
		case (v.c.Accumulates || v.c.Retires) && v.sets.Raised(flags+gradientReducing):
			v.c.planFault(Reduction, v.rank, "Rank %d never waits for the reduction of stage %d; add %v.", v.rank, stage, schedule.NewAction(schedule.WaitReduce, stage, 0))
		case v.sets.Raised(flags + gradientWhole):
			v.c.planFault(Reduction, v.rank, "Rank %d adds nothing to the last whole gradients of stage %d; remove its last %v.", v.rank, stage, schedule.NewAction(schedule.ZeroGrad, stage, 0))
		}
	}
}

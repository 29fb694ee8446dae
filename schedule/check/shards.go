package check

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// sharding proves, rank by rank, that the weights of a stage are there when it
// computes and that its gradients are reduced when they are complete.
//
// In a plan that gathers the weights of a stage (UNSHARD) or gives them up (RESHARD) the stage
// computes only between the two, any number of times, and all weights are given up at the end. A
// plan may reduce the gradients of a stage (REDUCE_GRAD) in parts: something must have been added
// to them since the reduction before, and the last reduction comes after the last B or W.
func (c *Checker) sharding() {
	for rank, program := range c.Plan.Programs {
		v := &sharding{c: c, rank: rank, Walk: passes.NewWalk(&c.Outline, 2*len(c.On[rank])), first: make([]spot, len(c.On[rank]))}
		if !v.needed() {
			continue
		}
		v.Program(program, false, v)
		if !c.Unproved(&v.Walk, rank) {
			v.left()
			c.looked(&v.Walk)
		}
	}
}

// sharding is the visitor that follows weights and gradients on a rank. Its sets are flags, by the
// rank's stages: first those of weights that are gathered, then those of gradients that are not
// reduced yet.
type sharding struct {
	passes.Walk
	c     *Checker
	rank  int
	first []spot // by the rank's stages: the first action that has added to a gradient since its reduction
}

// needed reports whether there is anything to follow on the rank.
func (v *sharding) needed() bool {
	for _, stage := range v.c.On[v.rank] {
		if v.shards(stage) || v.c.Includes(stage, schedule.ReduceGrad) {
			return true
		}
	}
	return false
}

// shards reports whether the plan gathers the weights of the stage.
func (v *sharding) shards(stage int) bool {
	return v.c.Includes(stage, schedule.Unshard) || v.c.Includes(stage, schedule.Reshard)
}

func (v *sharding) Repeats(*schedule.Segment, int64) {}

func (v *sharding) Visit(a schedule.Action, mb int64) {
	c, stage, kind := v.c, a.Stage(), a.Kind()
	gathered, unreduced := c.Place[stage], c.Place[stage]+len(c.On[v.rank])
	switch kind {
	case schedule.Unshard:
		if !v.Raise(gathered) {
			v.fault(a, mb, Sharding, "gathers weights that are there already; take it out, or put a RESHARD before it.")
		}
	case schedule.Reshard:
		if !v.Lower(gathered) {
			v.fault(a, mb, Sharding, "gives up weights that are not there; take it out, or put an UNSHARD before it.")
		}
	case schedule.ReduceGrad:
		if c.allows(stage, kind) && !v.Lower(unreduced) {
			v.fault(a, mb, Reduction, "reduces gradients to which nothing was added since the reduction before; take it out.")
		}
	case schedule.F, schedule.B, schedule.I, schedule.W, schedule.Quantize:
		if v.shards(stage) && !v.Raised(gathered) {
			v.fault(a, mb, Sharding, "computes with weights that are not there; put an UNSHARD of stage %d before it, and its RESHARD behind it.", stage)
		}
	}
	if (kind == schedule.B || kind == schedule.W) && c.allows(stage, kind) && v.Raise(unreduced) {
		v.first[c.Place[stage]] = spot{v.rank, v.Segment, v.Index, v.Position, a, mb}
	}
}

func (v *sharding) fault(a schedule.Action, mb int64, code Code, format string, args ...any) {
	v.c.at(&v.Walk, v.rank, a, mb, code, "", format, args...)
}

// left adds faults for weights that are not given up, and gradients that are not reduced, at the
// end.
func (v *sharding) left() {
	for i, stage := range v.c.On[v.rank] {
		if len(v.Get(i)) > 0 {
			v.c.plain(Sharding, v.rank, "Rank %d never gives up the weights of stage %d that it has gathered last; add %v.", v.rank, stage, schedule.Act(schedule.Reshard, stage, 0))
		}
		if v.c.Includes(stage, schedule.ReduceGrad) && len(v.Get(i+len(v.c.On[v.rank]))) > 0 {
			v.c.fault(v.first[i], Reduction, "", "adds to gradients behind their last reduction; move %v behind the last B or W of the stage.", schedule.Act(schedule.ReduceGrad, stage, 0))
		}
	}
}

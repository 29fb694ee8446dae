package lower

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// Passes are the parameters of [Prepare].
type Passes struct {
	// StageInfo holds, by stage, the facts of the stage. Parts is the number of parts in a batch entry.
	StageInfo []schedule.StageInfo
	Parts     int
	// Gathered is the number of stages whose weights a rank keeps gathered, or [MinGathered]; 0 means that
	// weights are not sharded.
	Gathered int
	// GatheredBy, if it is not nil, overrides Gathered with a number for each rank.
	GatheredBy []int
	// Quantizing selects when copies of weights are made, if StageInfo requires any.
	Quantizing Quantizing
	// Reduce adds the reductions of gradients over replicas. Level is the level at which the replicas
	// shard their state.
	Reduce bool
	Level  int
	// Capacity is the capacity of the links between ranks, in messages: schedule.Unlimited, or 0 or more.
	Capacity int
	// OffloadSlots holds, by stage, the slots of saved state that move to far memory, as in
	// [schedule.Plan]; nil disables offloading. Overlap is the number of computations with which
	// each copy overlaps; 0 means 1.
	OffloadSlots []uint64
	Overlap      int
	// NoLifetimes skips the lifetime pass, for a plan that is only simulated or drawn.
	NoLifetimes bool
}

// MinGathered is the value of Passes.Gathered that selects the smallest number that the plan allows: 2 if
// the plan has joined pairs, otherwise 1.
const MinGathered = -1

// minGathered returns the smallest number of gathered stages that a plan allows.
func minGathered(plan *schedule.Plan) int {
	for _, program := range plan.Programs {
		for a := range schedule.StaticActions(program) {
			if a.Joined() {
				return 2
			}
		}
	}
	return 1
}

// Prepare turns a plan that a rule generated into a plan that can run. It applies these passes in order:
//
//   - stages that do not split their backward and are not frozen run the backward as B ([Unsplit]);
//   - weights are gathered and released if they are sharded ([Shard]);
//   - copies of weights are made if facts require them ([Quantize]);
//   - gradients are reduced if requested ([Reduce]);
//   - transfers are added to a plan for several ranks that has none ([Transfers]);
//   - saved state is moved to far memory if requested ([Offload]);
//   - every action gets its drops, unless NoLifetimes is set ([Lifetimes]).
//
// Prepare proves the result with [check.Links] for the given capacity, so that the result need not be
// proved again. Prepare returns the errors of the passes and of the proof. If the given plan is invalid,
// the error describes the faults of that plan.
func Prepare(plan *schedule.Plan, p Passes) (*schedule.Plan, error) {
	if err := checkStageInfo(p.StageInfo, plan.Placement.Stages(), p.Parts); err != nil {
		return nil, err
	}
	c := programs(plan)
	if len(c.Faults) > 0 {
		return nil, c.Finish(schedule.Unlimited) // adds the faults between ranks
	}
	prepared, err := p.apply(plan, c.Transfers)
	if err == nil {
		err = check.Links(prepared, p.Capacity)
	}
	if err != nil {
		if invalid := c.Finish(schedule.Unlimited); invalid != nil {
			return nil, invalid
		}
		return nil, err
	}
	return prepared, nil
}

// apply runs the passes on a plan whose programs are individually valid.
func (p *Passes) apply(plan *schedule.Plan, transfers bool) (_ *schedule.Plan, err error) {
	whole, quantizes := make([]bool, len(p.StageInfo)), false
	for stage, f := range p.StageInfo {
		whole[stage] = !f.Split && !f.Frozen
		quantizes = quantizes || f.Quantizes
	}
	if plan.Mode == schedule.Training && slices.Contains(whole, true) {
		if plan, err = Unsplit(plan, whole); err != nil {
			return nil, err
		}
	}
	switch {
	case p.GatheredBy != nil:
		plan, err = shard(plan, p.GatheredBy)
	case p.Gathered == MinGathered:
		plan, err = Shard(plan, minGathered(plan))
	case p.Gathered > 0:
		plan, err = Shard(plan, p.Gathered)
	}
	if err != nil {
		return nil, err
	}
	if quantizes {
		if plan, err = quantize(plan, p.StageInfo, p.Quantizing); err != nil {
			return nil, err
		}
	}
	if p.Reduce {
		if plan, err = Reduce(plan, p.Level); err != nil {
			return nil, err
		}
	}
	if plan.Placement.Ranks > 1 && !transfers {
		if plan, err = transfer(plan, p.Capacity); err != nil {
			return nil, err
		}
	}
	if p.OffloadSlots != nil {
		if plan, err = offload(plan, p.OffloadSlots, p.Overlap); err != nil {
			return nil, err
		}
	}
	if p.NoLifetimes {
		return plan, nil
	}
	return lifetimes(plan, p.StageInfo)
}

// programs checks that the parts of a plan are consistent and that each program is valid on its own,
// which the passes require.
func programs(plan *schedule.Plan) *check.Checker {
	c := &check.Checker{Name: plan.Name}
	c.CheckShape(plan)
	c.Programs(plan)
	return c
}

package lower

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// Passes are the parameters of [Prepare].
type Passes struct {
	// Facts are by stage, and Parts is the number of parts of a batch entry.
	Facts []schedule.Facts
	Parts int
	// Shard is how many stages a rank has gathered at once, 0 if weights are not sharded.
	Shard int
	// Quantizing is where the copies of weights are made, if facts ask for any.
	Quantizing Quantizing
	// Reduce adds the reduction of gradients over replicas.
	Reduce bool
	// Capacity is the capacity of the links between ranks.
	Capacity int
	// Away are by stage the slots of saved state that go to far memory, as in [schedule.Plan]; nil if
	// nothing does. A copy overlaps with this many computations; 0 is 1.
	Away    []uint64
	Overlap int
	// NoLifetimes leaves out the lifetimes, for a plan that is only simulated or drawn.
	NoLifetimes bool
}

// Prepare turns the plan of a rule into a plan that can run. In this order:
//
//   - stages that neither split their backward nor are frozen run it whole ([Unsplit]);
//   - weights are gathered and given up if they are sharded ([Shard]);
//   - copies of weights are made if facts ask for them ([Quantize]);
//   - gradients are reduced if that is asked for ([Reduce]);
//   - a plan for several ranks that has no transfers gets them ([Transfers]);
//   - saved state is moved to far memory if that is asked for ([Offload]);
//   - every action gets its drops ([Lifetimes]).
//
// The result is proved, by [check.Links] for links of the capacity, and need not be proved again.
// Errors are those of the passes and of the proof; if the given plan is not valid, they are about
// that plan.
func Prepare(plan *schedule.Plan, p Passes) (*schedule.Plan, error) {
	if err := checkFacts(p.Facts, plan.Placement.Stages(), p.Parts); err != nil {
		return nil, err
	}
	c := programs(plan)
	if len(c.Faults) > 0 {
		return nil, c.Finish(schedule.Unlimited) // with the faults between ranks
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

// apply runs the passes over a plan each of whose programs is valid by itself.
func (p *Passes) apply(plan *schedule.Plan, transfers bool) (_ *schedule.Plan, err error) {
	whole, quantizes := make([]bool, len(p.Facts)), false
	for stage, f := range p.Facts {
		whole[stage] = !f.Split && !f.Frozen
		quantizes = quantizes || f.Quantizes
	}
	if plan.Mode == schedule.Training && slices.Contains(whole, true) {
		if plan, err = Unsplit(plan, whole); err != nil {
			return nil, err
		}
	}
	if p.Shard > 0 {
		if plan, err = Shard(plan, p.Shard); err != nil {
			return nil, err
		}
	}
	if quantizes {
		if plan, err = quantize(plan, p.Facts, p.Quantizing); err != nil {
			return nil, err
		}
	}
	if p.Reduce {
		if plan, err = Reduce(plan); err != nil {
			return nil, err
		}
	}
	if plan.Placement.Ranks > 1 && !transfers {
		if plan, err = transfer(plan, p.Capacity); err != nil {
			return nil, err
		}
	}
	if p.Away != nil {
		if plan, err = offload(plan, p.Away, p.Overlap); err != nil {
			return nil, err
		}
	}
	if p.NoLifetimes {
		return plan, nil
	}
	return lifetimes(plan, p.Facts)
}

// programs finds the faults of a plan whose parts do not fit together, or whose programs are not
// valid each by itself. A pass may rely on a plan without such faults.
func programs(plan *schedule.Plan) *check.Checker {
	c := &check.Checker{Name: plan.Name}
	c.CheckShape(plan)
	c.Programs(plan)
	return c
}

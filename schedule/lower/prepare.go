package lower

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// Passes says what [Prepare] adds to a plan.
type Passes struct {
	// Facts are those of the stages, and Parts the number of parts of a batch entry.
	Facts []schedule.Facts
	Parts int
	// Shard is how many stages a rank has gathered at once, 0 where weights are not sharded.
	Shard int
	// Quantizing says where the copies of weights are made that facts ask for.
	Quantizing Quantizing
	// Reduce adds the reduction of gradients over replicas.
	Reduce bool
	// Capacity is that of the links between ranks.
	Capacity int
	// NoLifetimes leaves out the lifetimes, for a plan that is only simulated or drawn.
	NoLifetimes bool
}

// Prepare is the way from the plan of a rule to a plan that can run. In this order:
//
//   - stages that neither split their backward nor are frozen run it whole ([Unsplit]);
//   - weights are gathered and given up where they are sharded ([Shard]);
//   - copies of weights are made where facts ask for them ([Quantize]);
//   - gradients are reduced where that is asked for ([Reduce]);
//   - a plan for several ranks that has no transfers gets them ([Transfers]);
//   - every action gets what dies with it ([Lifetimes]).
//
// What comes out is proved, as [check.Links] does, for links of the capacity: nobody needs to
// prove it again. Errors are those of the passes and of the proof; where the plan itself is
// not valid, they are about the plan as it was given.
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

// apply runs the passes over a plan whose programs are valid, each by itself.
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
	if p.NoLifetimes {
		return plan, nil
	}
	return lifetimes(plan, p.Facts)
}

// programs finds the faults of a plan that does not fit together, or whose programs are not
// valid each by itself. Where there are none a pass may rely on that.
func programs(plan *schedule.Plan) *check.Checker {
	c := &check.Checker{Name: plan.Name}
	c.CheckShape(plan)
	c.Programs(plan)
	return c
}

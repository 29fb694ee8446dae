package choose

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Candidate is a plan that was considered.
type Candidate struct {
	Schedule string
	Variant  string // such as "group 8", "" if there is one only
	// Params are the parameters of the rule. An order that was searched has no rule, and only the
	// placement and the microbatches of these.
	Params schedule.Params
	// Plan is proven, with transfers if there are several ranks. Report is its simulation. Both are
	// nil if the candidate was refused.
	Plan   *schedule.Plan
	Report *simulate.Report
	// Gathered is the number of stages whose weights a rank holds gathered at once, 0 if weights are
	// not sharded.
	Gathered int
	// GatheredBy is that number for each rank, nil if it is the same for all.
	GatheredBy []int
	Peak       int64 // bytes on the fullest rank
	// FarPeak is bytes in far memory on the rank that has the most there. Plan.Away names slot 0 for
	// each stage whose state goes there; a run knows the slots, and their bytes.
	FarPeak int64
	Fits    bool // within the memory, near and far
	Front   bool // no other that fits is both as fast and as small
	// Refused says why there is no plan.
	Refused error

	bare *schedule.Plan // the plan that was proven, before its passes
}

// Name returns the schedule with its variant.
func (c *Candidate) Name() string {
	if c.Variant == "" {
		return c.Schedule
	}
	return c.Schedule + " " + c.Variant
}

// Offloads reports whether the plan moves saved state to far memory.
func (c *Candidate) Offloads() bool { return c.Plan != nil && c.Plan.Away != nil }

// make makes, proves and simulates the plan of a schedule.
func (c *Candidate) make(s *schedule.Schedule, r *Request) {
	if c.Refused != nil {
		return
	}
	err := c.seldom(s)
	var plan *schedule.Plan
	if err == nil {
		plan, err = s.Rule(c.Params)
	}
	if err == nil {
		err = lengthy(plan)
	}
	if err != nil {
		c.Refused = err
		return
	}
	c.gather(r)
	c.prove(plan, r)
}

// longText is how many actions of a step are tried before a longer one is made.
const longText = 1 << 17

// seldom refuses a long depth-first plan of several stages a rank in which nothing repeats
// within longText actions: it would be written out, with its transfers, action by action.
func (c *Candidate) seldom(s *schedule.Schedule) error {
	trial := c.Params
	if trial.Microbatches = longText / (2 * trial.Placement.Stages()); s.Name != "depth-first" || trial.Microbatches >= c.Params.Microbatches || trial.Placement.Stages() <= trial.Placement.Ranks {
		return nil
	}
	plan, err := s.Rule(trial)
	if err != nil {
		return nil // It may be for this number of microbatches alone.
	}
	for _, program := range plan.Programs {
		if slices.ContainsFunc(program, func(s schedule.Segment) bool { return s.Repeat > 1 }) {
			return nil
		}
	}
	return fmt.Errorf("%w: its order does not repeat within %d microbatches, so that %d take too long: use fewer", schedule.ErrParams, trial.Microbatches, c.Params.Microbatches)
}

// prove proves and simulates a plan that only computes.
func (c *Candidate) prove(plan *schedule.Plan, r *Request) {
	meant, capacity := *plan, r.Capacity
	c.bare = plan
	if meant.Runtime = r.Runtime; r.Runtime == schedule.PyTorch {
		capacity = 0
	}
	plan, err := lower.Prepare(&meant, lower.Passes{
		Facts: quantizing(plan, r.Costs), Capacity: capacity, NoLifetimes: true,
		Reduce: r.Costs.Replicas > 1, Level: r.Costs.Shard, Gathered: c.Gathered, GatheredBy: c.GatheredBy,
	})
	var report *simulate.Report
	if err == nil {
		report, err = simulate.Run(plan, r.Costs, capacity)
	}
	if err != nil {
		c.Refused = err
		return
	}
	if r.Runtime == schedule.PyTorch && plan.Placement.Ranks > 1 {
		plan, report = faster(plan, report, r)
	}
	c.accept(plan, report, r)
}

// accept takes the plan and its simulation.
func (c *Candidate) accept(plan *schedule.Plan, report *simulate.Report, r *Request) {
	c.Plan, c.Report = plan, report
	for _, rank := range report.Ranks {
		c.Peak, c.FarPeak = max(c.Peak, rank.Peak), max(c.FarPeak, rank.FarPeak)
	}
	c.Fits = (r.Memory == 0 || c.Peak <= r.Memory) && c.FarPeak <= r.Far
}

// faster returns a plan of PyTorch with receives that are posted by the costs, if that is
// proven and faster.
func faster(plan *schedule.Plan, report *simulate.Report, r *Request) (*schedule.Plan, *simulate.Report) {
	var actions int64
	for rank := range plan.Programs {
		actions += plan.Actions(rank)
	}
	if actions > mostPosted {
		return plan, report
	}
	early, err := posted(plan, r.Costs)
	if err == nil {
		err = check.Links(early, 0)
	}
	if err != nil {
		return plan, report
	}
	if sooner, err := simulate.Run(early, r.Costs, 0); err == nil && sooner.Makespan < report.Makespan {
		return early, sooner
	}
	return plan, report
}

// quantizing returns facts of stages that run the backward as the plan has it, and QUANTIZE
// if that costs time or memory.
func quantizing(plan *schedule.Plan, costs *simulate.Costs) []schedule.Facts {
	facts := make([]schedule.Facts, plan.Placement.Stages())
	for stage := range facts {
		s := costs.Of(stage)
		facts[stage] = schedule.Facts{Split: true, Quantizes: s.Quantize+s.ForwardWeights+s.BackwardWeights > 0}
	}
	return facts
}

const (
	// longStep is how many actions of a plan are simulated one by one in a moment.
	longStep = 1 << 22
	// longTurn is how many microbatches may pass until an order repeats, in multiples of
	// the ranks, and longBody how many actions, so that its times soon repeat as well
	// and can be leapt over.
	longTurn = 4
	longBody = 1 << 14
)

// lengthy refuses a long plan that repeats too seldom to be simulated soon.
func lengthy(plan *schedule.Plan) error {
	var actions int64
	stride, body := 0, 0
	for rank, program := range plan.Programs {
		actions += plan.Actions(rank)
		for _, segment := range program {
			if segment.Repeat > 1 {
				stride = max(stride, segment.Stride, -segment.Stride)
				body += int(segment.Len())
			}
		}
	}
	if ranks := plan.Placement.Ranks; ranks > 1 && actions > longStep && (stride > longTurn*ranks || body > longBody) {
		return fmt.Errorf("%w: its order repeats only after %d microbatches and %d actions, so that %d microbatches take too long to simulate: use fewer", schedule.ErrParams, stride, body, plan.Microbatches)
	}
	return nil
}

package choose

import (
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Candidate is a plan that was considered.
type Candidate struct {
	Schedule string
	Variant  string // for example "group 8", empty if the schedule has one variant
	// Params holds the rule's parameters. For a searched order, which has no rule, only the placement and
	// the microbatches are set.
	Params schedule.Params
	// Plan is the proven plan, with transfers between ranks, and Report its simulation. Both are nil if
	// the candidate was refused.
	Plan   *schedule.Plan
	Report *simulate.Report
	// Gathered is the number of stages whose gathered weights a rank holds at the same time. It is 0 if weights are not
	// sharded, and if GatheredBy is set.
	Gathered int
	// GatheredBy is the number of these stages for each rank, or nil if it is the same on all ranks.
	GatheredBy []int
	Peak       int64 // bytes on the fullest rank
	// FarPeak is the highest peak of bytes in far memory over all ranks. Plan.OffloadSlots names slot 0 for each
	// stage whose state is offloaded, since Choose does not know the slots of a run.
	FarPeak int64
	Fits    bool // within the memory and the far memory
	Front   bool // in Choice.Front
	// Refused is the reason why there is no plan.
	Refused error

	computations *schedule.Plan // the plan before the passes, with computations only
}

// Name returns the schedule's name with the variant.
func (c *Candidate) Name() string {
	if c.Variant == "" {
		return c.Schedule
	}
	return c.Schedule + " " + c.Variant
}

// Offloads reports whether the plan moves saved state to far memory.
func (c *Candidate) Offloads() bool { return c.Plan != nil && c.Plan.OffloadSlots != nil }

// build builds, proves and simulates the plan of a schedule.
func (c *Candidate) build(s *schedule.Schedule, r *Request) {
	if c.Refused != nil {
		return
	}
	err := c.checkTrial(s)
	var plan *schedule.Plan
	if err == nil {
		plan, err = s.Rule(c.Params)
	}
	if err == nil {
		err = checkRepeats(plan)
	}
	if err != nil {
		c.Refused = err
		return
	}
	c.setGathered(r)
	c.prove(plan, r)
}

// trialActions is the number of actions in a trial plan, which is built before a longer one.
const trialActions = 1 << 17

// checkTrial refuses a long depth-first plan with several stages on a rank if a trial plan of
// trialActions actions contains no repeats. The long plan would list its actions and transfers one by
// one.
func (c *Candidate) checkTrial(s *schedule.Schedule) error {
	trial, stages := c.Params, c.Params.Placement.Stages()
	trial.Microbatches = trialActions / (2 * stages)
	if s.Name != "depth-first" || trial.Microbatches >= c.Params.Microbatches || stages <= trial.Placement.Ranks {
		return nil
	}
	plan, err := s.Rule(trial)
	if err != nil {
		return nil // the rule may accept only other numbers of microbatches
	}
	for _, program := range plan.Programs {
		if slices.ContainsFunc(program, func(s schedule.Segment) bool { return s.Repeat > 1 }) {
			return nil
		}
	}
	return diagnostic.Errorf(schedule.ErrParams, "its order does not repeat within %d microbatches, so that %d take too long: use fewer", trial.Microbatches, c.Params.Microbatches)
}

// prove lowers, proves and simulates a plan that consists of computations only. The plan has no
// lifetimes, because Choose knows the costs of the stages but not the tensors that they read and keep. A
// runner therefore prepares and proves the plan again before it runs it.
func (c *Candidate) prove(plan *schedule.Plan, r *Request) {
	c.computations = plan
	withRuntime, capacity := *plan, r.Capacity
	withRuntime.Runtime = r.Runtime
	if r.Runtime == schedule.PyTorch {
		capacity = 0
	}
	plan, err := lower.Prepare(&withRuntime, lower.Passes{
		StageInfo: quantizing(plan, r.Costs), Capacity: capacity, NoLifetimes: true,
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
		plan, report = withPostedReceives(plan, report, r)
	}
	c.accept(plan, report, r)
}

// accept sets the plan and its simulation.
func (c *Candidate) accept(plan *schedule.Plan, report *simulate.Report, r *Request) {
	c.Plan, c.Report = plan, report
	for _, rank := range report.Ranks {
		c.Peak, c.FarPeak = max(c.Peak, rank.Peak), max(c.FarPeak, rank.FarPeak)
	}
	c.Fits = (r.Memory == 0 || c.Peak <= r.Memory) && c.FarPeak <= r.Far
}

// withPostedReceives returns a plan for PyTorch whose receives are posted in time according to the costs,
// provided that the given plan has at most maxPostedActions actions and that the new one is proven and has
// a smaller makespan. Otherwise it returns the given one.
func withPostedReceives(plan *schedule.Plan, report *simulate.Report, r *Request) (*schedule.Plan, *simulate.Report) {
	var actions int64
	for rank := range plan.Programs {
		actions += plan.Actions(rank)
	}
	if actions > maxPostedActions {
		return plan, report
	}
	posted, err := postReceives(plan, r.Costs)
	if err == nil {
		err = check.Links(posted, 0)
	}
	if err != nil {
		return plan, report
	}
	if faster, err := simulate.Run(posted, r.Costs, 0); err == nil && faster.Makespan < report.Makespan {
		return posted, faster
	}
	return plan, report
}

// quantizing returns facts for stages that accept B as well as I and W, and that run QUANTIZE if it costs
// time or memory.
func quantizing(plan *schedule.Plan, costs *simulate.Costs) []schedule.StageInfo {
	facts := make([]schedule.StageInfo, plan.Placement.Stages())
	for stage := range facts {
		s := costs.Of(stage)
		facts[stage] = schedule.StageInfo{Split: true, Quantizes: s.Quantize+s.ForwardWeights+s.BackwardWeights > 0}
	}
	return facts
}

const (
	// maxUnrepeated is the number of actions that can be simulated one by one in little time.
	maxUnrepeated = 1 << 22
	// maxStridePerRank and maxBody bound the period of a longer order, in microbatches per rank and in
	// actions. With such a period the times soon repeat too, so the simulation can skip repeats.
	maxStridePerRank = 4
	maxBody          = 1 << 14
)

// checkRepeats refuses a long plan whose period is too long for a fast simulation.
func checkRepeats(plan *schedule.Plan) error {
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
	if ranks := plan.Placement.Ranks; ranks > 1 && actions > maxUnrepeated && (stride > maxStridePerRank*ranks || body > maxBody) {
		return diagnostic.Errorf(schedule.ErrParams, "its order repeats only after %d microbatches and %d actions, so that %d microbatches take too long to simulate: use fewer", stride, body, plan.Microbatches)
	}
	return nil
}

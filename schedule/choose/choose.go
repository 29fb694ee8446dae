package choose

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// ErrNone is returned where no schedule gives a plan that fits.
var ErrNone = errors.New("choose: no plan fits")

// Request says what to choose for.
type Request struct {
	Ranks, Stages, Microbatches int
	// Costs are by stage of the model, or one entry for all. They are borrowed.
	Costs *schedule.Costs
	// Memory is the most bytes that may be live on a rank; 0 is any number.
	Memory int64
	// Capacity is what a link between ranks holds: schedule.Unlimited, or 0 or more.
	Capacity int
	// Reordered allows plans whose backward does not take microbatches in ascending
	// order, so that sums of gradients differ in their last bits from others.
	Reordered bool
}

// Candidate is one plan that was looked at.
type Candidate struct {
	Schedule string
	Variant  string // such as "group 8", "" where there is one only
	Params   schedule.Params
	// Plan is proven, with transfers where there are several ranks. Report is its
	// simulation. Both are nil where it was refused.
	Plan   *schedule.Plan
	Report *schedule.Report
	Peak   int64 // bytes on the fullest rank
	Fits   bool  // within the memory
	Front  bool  // no other that fits is both as fast and as small
	// Refused says why there is no plan.
	Refused error
}

// Choice is what was found.
type Choice struct {
	Best *Candidate
	// Front is by time, the fastest first: the best, and what takes less memory.
	Front []*Candidate
	// All has every candidate: those with a report by time, then those refused.
	All []*Candidate
}

// Choose returns the fastest proven plan that fits, the smaller one of two that are
// as fast. Errors wrap schedule.ErrParams or schedule.ErrCosts for a request that
// means nothing, ErrNone where nothing fits; then the choice still has all candidates.
func Choose(r Request) (*Choice, error) {
	if r.Costs == nil {
		return nil, fmt.Errorf("%w: there are none", schedule.ErrCosts)
	}
	if err := r.Costs.Validate(); err != nil {
		return nil, err
	}
	if n := len(r.Costs.Stages); n != 1 && n != r.Stages {
		return nil, fmt.Errorf("%w: there are costs of %d stages for a model of %d: give one entry for all, or one for each", schedule.ErrCosts, n, r.Stages)
	}
	if r.Ranks < 1 || r.Stages < 1 || r.Microbatches < 1 || r.Memory < 0 {
		return nil, fmt.Errorf("%w: %d ranks, %d stages, %d microbatches, %d bytes of memory: give 1 or more of each, and 0 bytes for no limit",
			schedule.ErrParams, r.Ranks, r.Stages, r.Microbatches, r.Memory)
	}
	choice := &Choice{}
	for _, s := range schedule.Schedules() {
		for _, c := range variants(&s, &r) {
			c.make(&s, &r)
			choice.All = append(choice.All, c)
		}
	}
	choice.rank()
	if choice.Best == nil {
		return choice, fmt.Errorf("%w: %s", ErrNone, choice.nearest(&r))
	}
	return choice, nil
}

// make makes, proves and simulates the plan.
func (c *Candidate) make(s *schedule.Schedule, r *Request) {
	if c.Refused != nil {
		return
	}
	plan, err := s.Rule(c.Params)
	if err == nil && plan.Placement.Ranks > 1 {
		plan, err = schedule.Comms(plan, r.Capacity)
	}
	if err == nil {
		err = schedule.CheckLinks(plan, r.Capacity)
	}
	var report *schedule.Report
	if err == nil {
		report, err = schedule.Simulate(plan, r.Costs, r.Capacity)
	}
	if err != nil {
		c.Refused = err
		return
	}
	c.Plan, c.Report = plan, report
	for _, rank := range report.Ranks {
		c.Peak = max(c.Peak, rank.Peak)
	}
	c.Fits = r.Memory == 0 || c.Peak <= r.Memory
}

// rank puts the candidates into order and finds the front.
func (c *Choice) rank() {
	slices.SortStableFunc(c.All, func(a, b *Candidate) int {
		switch {
		case a.Report == nil || b.Report == nil:
			return cmp.Compare(refused(a), refused(b))
		case a.Report.Makespan != b.Report.Makespan:
			return cmp.Compare(a.Report.Makespan, b.Report.Makespan)
		}
		return cmp.Compare(a.Peak, b.Peak)
	})
	for _, candidate := range c.All {
		if !candidate.Fits {
			continue
		}
		if n := len(c.Front); n > 0 && candidate.Peak >= c.Front[n-1].Peak {
			continue
		}
		candidate.Front = true
		c.Front = append(c.Front, candidate)
	}
	if len(c.Front) > 0 {
		c.Best = c.Front[0]
	}
}

func refused(c *Candidate) int {
	if c.Report == nil {
		return 1
	}
	return 0
}

// nearest says what came nearest to fitting.
func (c *Choice) nearest(r *Request) string {
	var smallest *Candidate
	for _, candidate := range c.All {
		if candidate.Report != nil && (smallest == nil || candidate.Peak < smallest.Peak) {
			smallest = candidate
		}
	}
	if smallest == nil {
		return fmt.Sprintf("%d stages on %d ranks with %d microbatches: %v", r.Stages, r.Ranks, r.Microbatches, c.All[0].Refused)
	}
	return fmt.Sprintf("the smallest is %s, which needs %d bytes on a rank of the %d that there are", smallest.Name(), smallest.Peak, r.Memory)
}

// Name returns the schedule with its variant.
func (c *Candidate) Name() string {
	if c.Variant == "" {
		return c.Schedule
	}
	return c.Schedule + " " + c.Variant
}

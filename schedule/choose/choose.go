package choose

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// ErrNone is returned if no schedule gives a plan that fits.
var ErrNone = errors.New("choose: no plan fits")

// Choice is the result of Choose.
type Choice struct {
	Best *Candidate
	// Front is by time, the fastest first: the best, and others that take less memory.
	Front []*Candidate
	// All has every candidate: those with a report by time, then those refused.
	All []*Candidate
}

// Choose returns the fastest proven plan that fits, the smaller one of two that are
// as fast. The same request gives the same choice. Errors wrap schedule.ErrParams or
// simulate.ErrCosts for an invalid request, ErrNone if nothing fits;
// then the choice still has all candidates.
func Choose(r Request) (*Choice, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	var work []func() []*Candidate
	for _, s := range schedule.Schedules() {
		for _, c := range variants(&s, &r) {
			work = append(work, func() []*Candidate {
				c.make(&s, &r)
				return []*Candidate{c}
			})
		}
	}
	work = append(work, r.searches()...)
	choice := &Choice{All: slices.Concat(inParallel(work)...)}
	if r.Costs.Shard == schedule.ShardWeights && r.Gathered == 0 {
		choice.All = append(choice.All, slices.Concat(inParallel(r.gathers(choice.All))...)...)
	}
	if r.Far > 0 {
		choice.All = append(choice.All, slices.Concat(inParallel(r.offloads(choice.All))...)...)
	}
	choice.rank(&r)
	if choice.Best == nil {
		return choice, fmt.Errorf("%w: %s", ErrNone, choice.nearest(&r))
	}
	return choice, nil
}

// rank puts the candidates into order and finds the front.
func (c *Choice) rank(r *Request) {
	slices.SortStableFunc(c.All, r.compare)
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

// compare puts the better candidate first, and those that were refused last.
func (r *Request) compare(a, b *Candidate) int {
	switch {
	case a.Report == nil && b.Report == nil:
		return 0
	case a.Report == nil:
		return 1
	case b.Report == nil:
		return -1
	}
	return cmp.Or(cmp.Compare(r.clock(a), r.clock(b)), cmp.Compare(a.Peak, b.Peak))
}

// clock returns the time that counts of a candidate that has a report.
func (r *Request) clock(c *Candidate) int64 {
	switch {
	case r.Clock == Span:
		return c.Report.Span
	case r.Costs.Replicas > 1:
		return c.Report.Step
	}
	return c.Report.Makespan
}

// Smallest returns the candidate that needs the least memory, nil if all were refused.
func (c *Choice) Smallest() (smallest *Candidate) {
	for _, candidate := range c.All {
		if candidate.Report != nil && (smallest == nil || candidate.Peak < smallest.Peak) {
			smallest = candidate
		}
	}
	return smallest
}

// nearest says which candidate came nearest to fitting.
func (c *Choice) nearest(r *Request) string {
	smallest := c.Smallest()
	if smallest == nil {
		return fmt.Sprintf("%d stages on %d ranks with %d microbatches: %v", r.Stages, r.Ranks, r.Microbatches, c.All[0].Refused)
	}
	return fmt.Sprintf("the smallest is %s, which needs %d bytes on a rank of the %d that there are", smallest.Name(), smallest.Peak, r.Memory)
}

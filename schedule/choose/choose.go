package choose

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// ErrNone is returned if no schedule yields a plan that fits.
var ErrNone = errors.New("choose: no plan fits")

// Choice is the result of Choose.
type Choice struct {
	Best *Candidate
	// Front lists the candidates that fit and need less memory than all fitting ones before them in All, the fastest first.
	Front []*Candidate
	// All lists every candidate: the proven ones by time and then by memory, and last the refused ones.
	All []*Candidate
}

// Choose returns the fastest proven plan that fits; of equally fast plans, the one that needs the least
// memory. Its result depends only on the request. An error for an invalid request wraps schedule.ErrParams or
// simulate.ErrCosts. If the costs of microbatches differ, only the named schedules are candidates, because a search
// repeats the order of a few microbatches. If no plan fits, the error wraps ErrNone and the choice contains all
// candidates.
func Choose(r Request) (*Choice, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	r.Costs = r.Costs.Uniform()
	var work []func() []*Candidate
	for _, s := range schedule.Schedules() {
		for _, c := range variants(&s, &r) {
			work = append(work, func() []*Candidate {
				c.build(&s, &r)
				return []*Candidate{c}
			})
		}
	}
	work = append(work, r.searches()...)
	choice := &Choice{All: runParallel(work)}
	if r.Costs.Shard == schedule.ShardWeights && r.Gathered == 0 {
		choice.All = append(choice.All, runParallel(r.gatheredVariants(choice.All))...)
	}
	if r.Far > 0 {
		choice.All = append(choice.All, runParallel(r.offloadedVariants(choice.All))...)
	}
	choice.sort(&r)
	if choice.Best == nil {
		return choice, fmt.Errorf("%w: %s", ErrNone, choice.nearest(&r))
	}
	return choice, nil
}

// sort sorts the candidates and sets the front and the best one.
func (c *Choice) sort(r *Request) {
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

// compare orders candidates from the best to the worst, and refused ones last.
func (r *Request) compare(a, b *Candidate) int {
	switch {
	case a.Report == nil && b.Report == nil:
		return 0
	case a.Report == nil:
		return 1
	case b.Report == nil:
		return -1
	}
	return cmp.Or(cmp.Compare(r.time(a), r.time(b)), cmp.Compare(a.Peak, b.Peak))
}

// fastest returns the best n of the candidates that have a plan.
func (r *Request) fastest(candidates []*Candidate, n int) []*Candidate {
	planned := slices.DeleteFunc(slices.Clone(candidates), func(c *Candidate) bool { return c.Report == nil })
	slices.SortStableFunc(planned, r.compare)
	return planned[:min(len(planned), n)]
}

// time returns the time that the request minimizes, for a candidate with a report.
func (r *Request) time(c *Candidate) int64 {
	switch {
	case r.Clock == Span:
		return c.Report.Span
	case r.Costs.Replicas > 1:
		return c.Report.Step
	}
	return c.Report.Makespan
}

// Smallest returns the candidate that needs the least memory, or nil if all were refused.
func (c *Choice) Smallest() (smallest *Candidate) {
	for _, candidate := range c.All {
		if candidate.Report != nil && (smallest == nil || candidate.Peak < smallest.Peak) {
			smallest = candidate
		}
	}
	return smallest
}

// nearest describes the candidate that needs the least memory, or says why the first one was refused if all were.
func (c *Choice) nearest(r *Request) string {
	smallest := c.Smallest()
	if smallest == nil {
		return fmt.Sprintf("%d stages on %d ranks with %d microbatches: %v", r.Stages, r.Ranks, r.Microbatches, c.All[0].Refused)
	}
	return fmt.Sprintf("the smallest, %s, needs %d bytes on one rank, and the limit is %d", smallest.Name(), smallest.Peak, r.Memory)
}

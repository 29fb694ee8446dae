package choose

import (
	"errors"
	"fmt"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
)

// errNoOrder is the reason given if a search ends without a plan.
var errNoOrder = errors.New("no order is found")

// searches returns the searches for orders, one for each partition of the model. If no search is possible,
// it returns a function whose only candidate is refused.
func (r *Request) searches() []func() []*Candidate {
	refused := func(format string, args ...any) []func() []*Candidate {
		err := diagnostic.Errorf(schedule.ErrParams, format, args...)
		return []func() []*Candidate{func() []*Candidate { return []*Candidate{{Schedule: "searched chain", Refused: err}} }}
	}
	switch {
	case r.Costs.Lengths != nil:
		return refused("a search repeats the order of a few microbatches, and these differ in length: only schedules with names are tried")
	case r.Ranks == 1:
		return refused("there is nothing to search on one rank, which takes as long in any order")
	case r.Stages < r.Ranks:
		return refused("%d stages on %d ranks: give every rank a stage", r.Stages, r.Ranks)
	}
	var work []func() []*Candidate
	for _, p := range r.partitions() {
		work = append(work, func() []*Candidate { return r.search(p) })
	}
	return work
}

// search returns the plans that it finds for a partition: the best one under each memory limit, unless a
// lower limit already yields a plan that is as fast. If it finds none, it returns a refused candidate.
func (r *Request) search(p partition) (list []*Candidate) {
	var searches []*search
	var reason error
	for _, split := range []bool{true, false} {
		if split && !r.splits() || !split && r.splits() && !r.wholeIsFaster() {
			continue
		}
		q, err := newSearch(r, p.blocks, split)
		if err != nil {
			reason = err
			continue
		}
		searches = append(searches, q)
	}
	if len(searches) == 0 {
		return []*Candidate{{Schedule: p.name, Refused: reason}}
	}
	known, fastest := make([][]policy, len(searches)), int64(infinity)
	limits := searches[0].limits(r)
	for i, limit := range limits {
		effort := 1
		if i == len(limits)-1 {
			effort = 4 // the highest limit allows the best order
		}
		best := &Candidate{Schedule: p.name, Variant: limit.name, Refused: fmt.Errorf("%w within %d bytes on a rank", errNoOrder, limit.bytes)}
		optimal := false
		for k, q := range searches {
			c, good := q.bestPlan(best, r, limit.bytes, known[k], effort, fastest)
			if known[k] = good; r.compare(c, best) < 0 {
				best = c
			}
			optimal = optimal || best.Report != nil && r.time(best) <= q.bound
		}
		reason = best.Refused
		if best.Report != nil && r.time(best) < fastest {
			if list = append(list, best); best.Fits {
				fastest = r.time(best)
			}
		}
		if optimal {
			break
		}
	}
	if len(list) == 0 {
		list = append(list, &Candidate{Schedule: p.name, Refused: reason})
	}
	return list
}

// maxAttempts is the largest number of limits that bestPlan tries.
const maxAttempts = 3

// bestPlan returns the best plan under a limit that is faster than the fastest so far, and good policies.
// Without a plan it returns the template, from which all candidates take their name. The size of an order
// does not include the bytes of transfers; if these make the plan exceed the memory, bestPlan searches
// again with a lower limit.
func (q *search) bestPlan(template *Candidate, r *Request, limit int64, known []policy, effort int, fastest int64) (best *Candidate, good []policy) {
	best = template
	for range maxAttempts {
		var solutions []solution
		solutions, known = q.solve(limit, known, effort)
		for _, s := range solutions {
			if fastest <= q.time(s) {
				break
			}
			if c := q.provenPlan(template, r, s); r.compare(c, best) < 0 || c.Fits && !best.Fits {
				if best = c; c.Fits {
					fastest = min(fastest, r.time(c))
				}
			}
		}
		if best.Report == nil || best.Fits {
			break
		}
		limit -= best.Peak - r.Memory
	}
	return best, known
}

// provenPlan returns the candidate for a solution. If some backwards are faster as B than as I and W, it
// also tries the plan with B in place of each I that is directly followed by its W.
func (q *search) provenPlan(template *Candidate, r *Request, s solution) *Candidate {
	plan := q.plan(template.Name(), s.order, s.cut)
	c := &Candidate{
		Schedule: template.Schedule, Variant: template.Variant,
		Params: schedule.Params{Placement: plan.Placement, Microbatches: plan.Microbatches},
	}
	c.setGathered(r)
	merged := *c
	c.prove(plan, r)
	if q.split && r.wholeIsFaster() {
		if merged.prove(lower.Merge(plan), r); r.compare(&merged, c) < 0 {
			return &merged
		}
	}
	return c
}

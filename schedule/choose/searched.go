package choose

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
)

// errNoOrder is why a search ends without a plan.
var errNoOrder = errors.New("no order is found")

// searches returns the work of searching orders, one piece for each way to place the
// model.
func (r *Request) searches() []func() []*Candidate {
	refused := func(format string, args ...any) []func() []*Candidate {
		err := fmt.Errorf("%w: "+format, append([]any{schedule.ErrParams}, args...)...)
		return []func() []*Candidate{func() []*Candidate { return []*Candidate{{Schedule: "searched chain", Refused: err}} }}
	}
	switch {
	case r.Ranks == 1:
		return refused("there is nothing to search on one rank, which takes as long in any order")
	case r.Stages < r.Ranks:
		return refused("%d stages on %d ranks: give every rank a stage", r.Stages, r.Ranks)
	}
	var work []func() []*Candidate
	for _, o := range r.outlines() {
		work = append(work, func() []*Candidate { return r.searched(o) })
	}
	return work
}

// searched returns the plans that are made for the costs when the model is placed like
// this: the best one under each limit, as long as more memory makes them better.
func (r *Request) searched(o outline) (list []*Candidate) {
	var searches []*search
	var reason error
	for _, split := range []bool{true, false} {
		if split && !r.splits() || !split && r.splits() && !r.wholeIsFaster() {
			continue
		}
		q, err := newSearch(r, o.blocks, split)
		if err != nil {
			reason = err
			continue
		}
		searches = append(searches, q)
	}
	if len(searches) == 0 {
		return []*Candidate{{Schedule: o.name, Refused: reason}}
	}
	known := make([][]policy, len(searches))
	limits := searches[0].limits(r)
	for i, under := range limits {
		effort := 1
		if i == len(limits)-1 {
			effort = 4 // the best order of all is here
		}
		best := &Candidate{Schedule: o.name, Variant: under.name, Refused: fmt.Errorf("%w within %d bytes on a rank", errNoOrder, under.bytes)}
		done := false
		for k, q := range searches {
			c, good := q.candidate(best, r, under.bytes, known[k], effort)
			if known[k] = good; r.compare(c, best) < 0 {
				best = c
			}
			done = done || best.Report != nil && r.clock(best) <= q.bound
		}
		reason = best.Refused
		if best.Report != nil && !slices.ContainsFunc(list, func(c *Candidate) bool { return c.Fits && r.clock(c) <= r.clock(best) }) {
			list = append(list, best)
		}
		if done {
			break
		}
	}
	if len(list) == 0 {
		list = append(list, &Candidate{Schedule: o.name, Refused: reason})
	}
	return list
}

// attempts are made to get below the memory.
const attempts = 3

// candidate returns the best plan under a limit, or else the candidate that is named so,
// and good policies. Transfers take bytes that an order does not include. If they make
// a plan too large for the memory the search continues with a lower limit.
func (q *search) candidate(named *Candidate, r *Request, limit int64, known []policy, effort int) (best *Candidate, good []policy) {
	best = named
	for range attempts {
		var orders []found
		orders, known = q.under(limit, known, effort)
		for _, f := range orders {
			if best.Report != nil && best.Fits && r.clock(best) <= q.clockOf(f) {
				break
			}
			if c := q.proven(named, r, f); r.compare(c, best) < 0 || c.Fits && !best.Fits {
				best = c
			}
		}
		if best.Report == nil || best.Fits {
			break
		}
		limit -= best.Peak - r.Memory
	}
	return best, known
}

// proven returns the plan of an order. If some backwards take less time in one, it may have those
// whose W follows their I.
func (q *search) proven(named *Candidate, r *Request, f found) *Candidate {
	plan := q.plan(named.Name(), f.order, f.cut)
	c := &Candidate{
		Schedule: named.Schedule, Variant: named.Variant,
		Params: schedule.Params{Placement: plan.Placement, Microbatches: plan.Microbatches},
	}
	c.gather(r)
	merged := *c
	c.prove(plan, r)
	if q.split && r.wholeIsFaster() {
		if merged.prove(lower.Merge(plan), r); r.compare(&merged, c) < 0 {
			return &merged
		}
	}
	return c
}

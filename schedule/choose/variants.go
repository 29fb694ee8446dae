package choose

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
)

// variants returns the candidates that a schedule gives: one for each group or cap
// that changes it, or one that says why there is none.
func variants(s *schedule.Schedule, r *Request) []*Candidate {
	place, err := s.Place(r.Ranks, r.Stages)
	c := &Candidate{Schedule: s.Name, Params: schedule.Params{Placement: place, Microbatches: r.Microbatches}, Refused: err}
	if err == nil && !s.Ascends && !r.Reordered {
		c.Refused = fmt.Errorf("%w: its backward does not ascend in microbatches", schedule.ErrParams)
	}
	if err == nil && s.Split && r.Costs != nil && !r.splits() {
		c.Refused = fmt.Errorf("%w: it runs I and W, and the costs have a time of B alone", schedule.ErrParams)
	}
	if c.Refused != nil {
		return []*Candidate{c}
	}
	switch s.Name {
	case "interleaved", "zb1p":
		return c.each("group %d", r.groups(1, 2), func(p *schedule.Params, n int) { p.Group = n })
	case "grouped-interleave":
		return c.each("group %d", r.groups(2, 1), func(p *schedule.Params, n int) { p.Group = n })
	case "zb-h2":
		return c.each("cap %d", r.caps(), func(p *schedule.Params, n int) { p.Cap = n })
	case "depth-first":
		if r.Ranks == 1 {
			return []*Candidate{c} // Its order has one microbatch in flight.
		}
		if r.Stages > r.Ranks && r.Stages > manyStages {
			c.Refused = fmt.Errorf("%w: on %d stages its order seldom repeats, and takes long to find; up to %d are tried", schedule.ErrParams, r.Stages, manyStages)
			return []*Candidate{c}
		}
		return c.each("cap %d", r.caps(), func(p *schedule.Params, n int) { p.Cap = n })
	}
	return []*Candidate{c}
}

// manyStages are too many for a depth-first order of several stages a rank.
const manyStages = 64

// each returns a copy of the candidate for each value of a parameter.
func (c *Candidate) each(variant string, values []int, set func(*schedule.Params, int)) []*Candidate {
	list := make([]*Candidate, 0, len(values))
	for _, n := range values {
		one := *c
		one.Variant = fmt.Sprintf(variant, n)
		set(&one.Params, n)
		list = append(list, &one)
	}
	return list
}

// groups returns the sizes of groups to try: the number of ranks, divided by up to
// the first number and times up to the second.
func (r *Request) groups(divided, times int) []int {
	groups := []int{r.Ranks}
	if n := (r.Ranks + 1) / 2; divided > 1 && n < r.Ranks {
		groups = append(groups, n)
	}
	if n := times * r.Ranks; times > 1 && n <= r.Microbatches {
		groups = append(groups, n)
	}
	return groups
}

// caps returns the numbers of microbatches in flight to try: from as many as there
// are ranks to twice as many, in a few steps.
func (r *Request) caps() []int {
	var caps []int
	for k := range 5 {
		if n := r.Ranks + k*r.Ranks/4; len(caps) == 0 || n > caps[len(caps)-1] {
			caps = append(caps, n)
		}
	}
	return caps
}

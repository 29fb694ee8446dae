package choose

import (
	"fmt"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
)

// variants returns the candidates for a schedule: one for each group size or cap to try. If the
// request excludes the schedule, the only candidate is refused.
func variants(s *schedule.Schedule, r *Request) []*Candidate {
	place, err := s.Place(r.Ranks, r.Stages)
	c := &Candidate{Schedule: s.Name, Params: schedule.Params{Placement: place, Microbatches: r.Microbatches}, Refused: err}
	if err == nil && !s.AscendingBackward && !r.Reordered {
		c.Refused = diagnostic.Errorf(schedule.ErrParams, "its backward does not ascend in microbatches")
	}
	if err == nil && s.Split && r.Costs != nil && !r.splits() {
		c.Refused = diagnostic.Errorf(schedule.ErrParams, "it runs I and W, but the costs only have times of B")
	}
	if c.Refused != nil {
		return []*Candidate{c}
	}
	switch s.Name {
	case "interleaved", "zb1p":
		return c.withValues("group %d", r.groups(false, true), func(p *schedule.Params, n int) { p.Group = n })
	case "grouped-interleave":
		return c.withValues("group %d", r.groups(true, false), func(p *schedule.Params, n int) { p.Group = n })
	case "zb-h2":
		return c.withValues("cap %d", r.caps(), func(p *schedule.Params, n int) { p.Cap = n })
	case "depth-first":
		if r.Ranks == 1 {
			return []*Candidate{c} // only one microbatch is in flight, so a cap changes nothing
		}
		if r.Stages > r.Ranks && r.Stages > maxDepthFirstStages {
			c.Refused = diagnostic.Errorf(schedule.ErrParams, "on %d stages its order seldom repeats and takes too long to find; the limit is %d stages", r.Stages, maxDepthFirstStages)
			return []*Candidate{c}
		}
		return c.withValues("cap %d", r.caps(), func(p *schedule.Params, n int) { p.Cap = n })
	}
	return []*Candidate{c}
}

// maxDepthFirstStages is the largest number of stages in a depth-first order with several stages on a
// rank.
const maxDepthFirstStages = 64

// withValues returns a copy of the candidate for each value of a parameter.
func (c *Candidate) withValues(variant string, values []int, set func(*schedule.Params, int)) []*Candidate {
	list := make([]*Candidate, 0, len(values))
	for _, n := range values {
		candidate := *c
		candidate.Variant = fmt.Sprintf(variant, n)
		set(&candidate.Params, n)
		list = append(list, &candidate)
	}
	return list
}

// groups returns the group sizes to try: the number of ranks, optionally half of it, and optionally twice
// that number if the step has that many microbatches.
func (r *Request) groups(half, double bool) []int {
	groups := []int{r.Ranks}
	if n := (r.Ranks + 1) / 2; half && n < r.Ranks {
		groups = append(groups, n)
	}
	if n := 2 * r.Ranks; double && n <= r.Microbatches {
		groups = append(groups, n)
	}
	return groups
}

// caps returns the numbers of microbatches in flight to try: from the number of ranks to twice that,
// in steps of a quarter.
func (r *Request) caps() []int {
	var caps []int
	for k := range 5 {
		if n := r.Ranks + k*r.Ranks/4; len(caps) == 0 || n > caps[len(caps)-1] {
			caps = append(caps, n)
		}
	}
	return caps
}

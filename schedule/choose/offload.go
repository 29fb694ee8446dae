package choose

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

const (
	// mostOffloaded is how many candidates are tried with offloads: the fastest ones.
	mostOffloaded = 16
	// offloadSteps is how many sets of stages are tried for each.
	offloadSteps = 8
)

// overlaps are the numbers of computations with which a copy overlaps that are tried.
var overlaps = [...]int{1, 2, 4, 8, 16}

// offloads returns the fastest candidates with the saved state of their first stages in far memory:
// for several numbers of stages, up to all, and several overlaps. A microbatch is in flight longest
// on the first stage, so these stages free the most memory for each byte that is copied, and have the
// most time for it.
func (r *Request) offloads(all []*Candidate) (work []func() []*Candidate) {
	all = slices.DeleteFunc(slices.Clone(all), func(c *Candidate) bool { return c.Report == nil })
	slices.SortStableFunc(all, r.compare)
	for _, base := range all[:min(len(all), mostOffloaded)] {
		work = append(work, func() (list []*Candidate) {
			for _, overlap := range overlaps {
				var moved []uint64 // by the candidate before
				steps := min(r.Stages, offloadSteps)
				for step := 1; step <= steps; step++ {
					c := base.offload(step*r.Stages/steps, overlap, r)
					if c.Plan != nil && !slices.Equal(c.Plan.Away, moved) {
						list, moved = append(list, c), c.Plan.Away
					}
				}
			}
			return list
		})
	}
	return work
}

// offload returns the candidate with the saved state of its first stages in far memory.
func (c *Candidate) offload(stages, overlap int, r *Request) *Candidate {
	other := &Candidate{Schedule: c.Schedule, Variant: fmt.Sprintf("offload 0-%d overlap %d", stages-1, overlap), Params: c.Params}
	if c.Variant != "" {
		other.Variant = c.Variant + " " + other.Variant
	}
	away := make([]uint64, c.Plan.Placement.Stages())
	for stage := range away {
		if stage%r.Stages < stages {
			away[stage] = 1
		}
	}
	plan, err := lower.Offload(c.Plan, away, overlap)
	if err == nil && plan.Away == nil {
		err = fmt.Errorf("%w: no microbatch of these stages is in flight long enough to be offloaded", schedule.ErrParams)
	}
	if err == nil {
		err = check.Links(plan, r.Capacity)
	}
	var report *simulate.Report
	if err == nil {
		report, err = simulate.Run(plan, r.Costs, r.Capacity)
	}
	if other.Refused = err; err == nil {
		other.accept(plan, report, r)
	}
	return other
}

package choose

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

const (
	// maxOffloaded is the number of candidates, the fastest ones, that are tried with offloads.
	maxOffloaded = 16
	// maxOffloadSets is the number of sets of stages that are tried for each candidate.
	maxOffloadSets = 8
)

// overlaps lists the numbers of computations during a copy that are tried; see lower.Offload.
var overlaps = [...]int{1, 2, 4, 8, 16}

// offloadedVariants returns functions that make variants of the fastest candidates. These offload the saved state
// of their first stages, for several numbers of stages and several overlaps. A microbatch is in flight longest
// in the first stages. Offloading these stages therefore frees the most memory per byte copied, and
// leaves the most time for the copies.
func (r *Request) offloadedVariants(all []*Candidate) (work []func() []*Candidate) {
	for _, base := range r.fastest(all, maxOffloaded) {
		work = append(work, func() (list []*Candidate) {
			for _, overlap := range overlaps {
				var previous []uint64 // stages of the preceding variant
				sets := min(r.Stages, maxOffloadSets)
				for i := 1; i <= sets; i++ {
					c := base.offload(i*r.Stages/sets, overlap, r)
					if c.Plan != nil && !slices.Equal(c.Plan.OffloadSlots, previous) {
						list, previous = append(list, c), c.Plan.OffloadSlots
					}
				}
			}
			return list
		})
	}
	return work
}

// offload returns a variant of the candidate that offloads the saved state of its first stages.
func (c *Candidate) offload(stages, overlap int, r *Request) *Candidate {
	variant := c.newVariant(fmt.Sprintf("offload 0-%d overlap %d", stages-1, overlap))
	variant.Gathered, variant.GatheredBy = c.Gathered, c.GatheredBy
	away := make([]uint64, c.Plan.Placement.Stages())
	for stage := range away {
		if stage%r.Stages < stages {
			away[stage] = 1
		}
	}
	plan, err := lower.Offload(c.Plan, away, overlap)
	if err == nil && plan.OffloadSlots == nil {
		err = diagnostic.Errorf(schedule.ErrParams, "no microbatch of these stages is in flight long enough to be offloaded")
	}
	if err == nil {
		err = check.Links(plan, r.Capacity)
	}
	var report *simulate.Report
	if err == nil {
		report, err = simulate.Run(plan, r.Costs, r.Capacity)
	}
	if variant.Refused = err; err == nil {
		variant.accept(plan, report, r)
	}
	return variant
}

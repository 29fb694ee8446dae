package choose

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

const (
	// defaultGathered is the number of gathered stages with which every candidate is first tried. A
	// joined pair needs two.
	defaultGathered = 2
	// maxRegathered is the number of candidates, the fastest ones, that are tried with other numbers.
	maxRegathered = 32
)

// setGathered sets the number of gathered stages of a new candidate.
func (c *Candidate) setGathered(r *Request) {
	if r.Costs.Shard != schedule.ShardWeights {
		return
	}
	if c.Gathered = r.Gathered; c.Gathered == 0 {
		c.Gathered = defaultGathered
	}
}

// gatheredVariants returns a function for each of the fastest candidates, which makes its variants: one for each
// number of gathered stages other than its own, up to all stages of a rank, and some with higher numbers on ranks
// that have free memory. A higher number needs more memory; a lower one needs more gathers.
func (r *Request) gatheredVariants(all []*Candidate) (work []func() []*Candidate) {
	for _, base := range r.fastest(all, maxRegathered) {
		work = append(work, func() (list []*Candidate) {
			maximum := 0
			for rank := range base.Plan.Placement.Ranks {
				maximum = max(maximum, len(base.Plan.Placement.On(rank)))
			}
			known := []*Candidate{base}
			for gathered := 1; gathered <= maximum; gathered++ {
				if gathered == base.Gathered {
					continue
				}
				c := base.newVariant(fmt.Sprintf("gathered %d", gathered))
				c.Gathered = gathered
				if c.prove(base.computations, r); c.Report != nil {
					list, known = append(list, c), append(known, c)
				}
			}
			for _, by := range r.gatheredBy(known) {
				c := base.newVariant(fmt.Sprintf("gathered %d-%d", slices.Min(by), slices.Max(by)))
				c.GatheredBy = by
				if c.prove(base.computations, r); c.Report != nil {
					list = append(list, c)
				}
			}
			return list
		})
	}
	return work
}

// newVariant returns a candidate for the same order, without a plan. It appends the variant to the name.
func (c *Candidate) newVariant(variant string) *Candidate {
	if c.Variant != "" {
		variant = c.Variant + " " + variant
	}
	return &Candidate{Schedule: c.Schedule, Variant: variant, Params: c.Params}
}

// gatheredBy returns lists of numbers of gathered stages, indexed by rank. The known candidates differ
// only in this number. For each of their peaks, and for the request's memory, there is a list with the
// largest number on each rank whose bytes stay within that limit. gatheredBy leaves out a list in which all
// numbers are equal or one is 0.
func (r *Request) gatheredBy(known []*Candidate) (lists [][]int) {
	limits := []int64{r.Memory}
	for _, c := range known {
		limits = append(limits, c.Peak)
	}
	for _, limit := range limits {
		by := make([]int, r.Ranks)
		for rank := range by {
			for _, c := range known {
				if c.Report.Ranks[rank].Peak <= limit {
					by[rank] = max(by[rank], c.Gathered)
				}
			}
		}
		if minimum := slices.Min(by); minimum > 0 && minimum < slices.Max(by) && !slices.ContainsFunc(lists, func(list []int) bool { return slices.Equal(list, by) }) {
			lists = append(lists, by)
		}
	}
	return lists
}

package choose

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/schedule"
)

const (
	// usualGathered is the number of gathered stages of every candidate. A joined pair needs two.
	usualGathered = 2
	// mostGathered is how many candidates are tried with other numbers: the fastest ones.
	mostGathered = 32
)

// gather sets the number of gathered stages of a new candidate.
func (c *Candidate) gather(r *Request) {
	if r.Costs.Shard != schedule.ShardWeights {
		return
	}
	if c.Gathered = r.Gathered; c.Gathered == 0 {
		c.Gathered = usualGathered
	}
}

// gathers returns the fastest candidates with every other number of gathered stages, up to all that a
// rank has, and with more of them on ranks that have room. More of them take memory, and fewer take gathers.
func (r *Request) gathers(all []*Candidate) (work []func() []*Candidate) {
	all = slices.DeleteFunc(slices.Clone(all), func(c *Candidate) bool { return c.Report == nil })
	slices.SortStableFunc(all, r.compare)
	for _, base := range all[:min(len(all), mostGathered)] {
		work = append(work, func() (list []*Candidate) {
			most := 0
			for rank := range base.Plan.Placement.Ranks {
				most = max(most, len(base.Plan.Placement.On(rank)))
			}
			known := []*Candidate{base}
			for gathered := 1; gathered <= most; gathered++ {
				if gathered == base.Gathered {
					continue
				}
				c := base.like(fmt.Sprintf("gathered %d", gathered))
				c.Gathered = gathered
				if c.prove(base.bare, r); c.Report != nil { // a joined pair needs two
					list, known = append(list, c), append(known, c)
				}
			}
			for _, by := range r.gatheredBy(known) {
				c := base.like(fmt.Sprintf("gathered %d-%d", slices.Min(by), slices.Max(by)))
				c.GatheredBy = by
				if c.prove(base.bare, r); c.Report != nil {
					list = append(list, c)
				}
			}
			return list
		})
	}
	return work
}

// like returns a candidate of the same order, with more to its name.
func (c *Candidate) like(variant string) *Candidate {
	if c.Variant != "" {
		variant = c.Variant + " " + variant
	}
	return &Candidate{Schedule: c.Schedule, Variant: variant, Params: c.Params}
}

// gatheredBy returns numbers of gathered stages by rank. Candidates that differ in the number alone
// have as many bytes on their fullest rank as others may have too: with that limit, and with the
// memory as one, each rank gets the largest number that fits.
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
		if least := slices.Min(by); least > 0 && least < slices.Max(by) && !slices.ContainsFunc(lists, func(list []int) bool { return slices.Equal(list, by) }) {
			lists = append(lists, by)
		}
	}
	return lists
}

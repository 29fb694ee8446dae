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
// rank has. More of them take memory, and fewer take gathers.
func (r *Request) gathers(all []*Candidate) (work []func() []*Candidate) {
	all = slices.DeleteFunc(slices.Clone(all), func(c *Candidate) bool { return c.Report == nil })
	slices.SortStableFunc(all, r.compare)
	for _, base := range all[:min(len(all), mostGathered)] {
		most := 0
		for rank := range base.Plan.Placement.Ranks {
			most = max(most, len(base.Plan.Placement.On(rank)))
		}
		work = append(work, func() (list []*Candidate) {
			for gathered := 1; gathered <= most; gathered++ {
				if gathered == base.Gathered {
					continue
				}
				c := &Candidate{Schedule: base.Schedule, Variant: fmt.Sprintf("gathered %d", gathered), Params: base.Params, Gathered: gathered}
				if base.Variant != "" {
					c.Variant = base.Variant + " " + c.Variant
				}
				if c.prove(base.bare, r); c.Report != nil { // a joined pair needs two
					list = append(list, c)
				}
			}
			return list
		})
	}
	return work
}

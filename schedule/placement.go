package schedule

// Placement maps stages to ranks. If it contains several copies of a model, each copy runs a part of
// the microbatches (Plan.Span), and stage s of copy c is stage c·Depth + s of the plan.
type Placement struct {
	Ranks  int
	Rank   []int // by stage, copy by copy: the stage's rank
	Copies int   // the number of copies of the model; 0 means 1
}

// Looped places stage s on rank s mod ranks. Params.Validate rejects a placement without ranks or
// stages.
func Looped(ranks, stages int) Placement {
	p := Placement{Ranks: ranks, Rank: make([]int, max(stages, 0))}
	for s := range p.Rank {
		p.Rank[s] = s % max(ranks, 1)
	}
	return p
}

// Wave places stages on the ranks from the first to the last and back again, until all stages are
// placed. With twice as many stages as ranks, the result is a V: rank r has stages r and 2·ranks-1-r.
func Wave(ranks, stages int) Placement {
	p := Looped(ranks, stages)
	for s := range p.Rank {
		if s/max(ranks, 1)%2 == 1 {
			p.Rank[s] = ranks - 1 - p.Rank[s]
		}
	}
	return p
}

// Bidirectional places two copies of a model with as many stages as ranks: stage s of the first copy
// is on rank s, and stage s of the second copy is on rank ranks-1-s.
func Bidirectional(ranks int) Placement {
	p := Placement{Ranks: ranks, Rank: make([]int, 2*max(ranks, 0)), Copies: 2}
	for s := range p.Rank {
		p.Rank[s] = s
		if s >= ranks {
			p.Rank[s] = 2*ranks - 1 - s
		}
	}
	return p
}

// Stages returns the total number of stages of all copies.
func (p Placement) Stages() int { return len(p.Rank) }

// Depth returns the number of stages of one copy of the model.
func (p Placement) Depth() int { return len(p.Rank) / max(p.Copies, 1) }

// First reports whether a stage is the first of its copy.
func (p Placement) First(stage int) bool { return p.within(stage) == 0 }

// Last reports whether a stage is the last of its copy: its losses start the backward.
func (p Placement) Last(stage int) bool { return p.within(stage) == p.Depth()-1 }

// On returns the stages of a rank in ascending order.
func (p Placement) On(rank int) []int {
	var stages []int
	for s, r := range p.Rank {
		if r == rank {
			stages = append(stages, s)
		}
	}
	return stages
}

// byRank returns the stages of each rank in ascending order.
func (p Placement) byRank() [][]int {
	on := make([][]int, p.Ranks)
	for stage, rank := range p.Rank {
		on[rank] = append(on[rank], stage)
	}
	return on
}

// within returns the index of a stage within its copy.
func (p Placement) within(stage int) int {
	if p.Copies < 2 {
		return stage
	}
	return stage % p.Depth()
}

// span returns the range [lo, hi) of those of the m microbatches that run through a stage.
func (p Placement) span(stage, m int) (lo, hi int) {
	if p.Copies < 2 {
		return 0, m
	}
	c, each, more := stage/p.Depth(), m/p.Copies, m%p.Copies
	lo = c*each + min(c, more)
	hi = lo + each
	if c < more {
		hi++
	}
	return lo, hi
}

package choose

import (
	"math"
	"slices"

	"github.com/weir-ml/weir/schedule/simulate"
)

// pricing computes the times and bytes of the tasks of a job shop. Its bytes agree with those of
// [simulate.Run] for a plan without transfers: a message to another rank is live during the tasks that
// write and read it.
type pricing struct {
	stages []simulate.StageCosts
	costs  *simulate.Costs
}

// newPricing returns the pricing of a request. If no stage saves bytes, it assumes one byte for each,
// so that limits bound the microbatches in flight.
func newPricing(r *Request) pricing {
	p := pricing{stages: r.stages(), costs: r.Costs}
	if !r.saves() {
		for i := range p.stages {
			p.stages[i].Saved = 1
		}
	}
	return p
}

// stages returns a copy of the costs with an entry for each stage.
func (r *Request) stages() []simulate.StageCosts {
	if len(r.Costs.Stages) == 1 {
		return slices.Repeat(r.Costs.Stages, r.Stages)
	}
	return slices.Clone(r.Costs.Stages)
}

// saves reports whether a stage saves bytes.
func (r *Request) saves() bool {
	return slices.ContainsFunc(r.Costs.Stages, func(c simulate.StageCosts) bool { return c.Saved > 0 })
}

// hop returns the time of a message between two blocks on different ranks if the link is idle.
func (p *pricing) hop(from, to block, bytes int64) int64 {
	l := p.costs.Link(from.rank, to.rank)
	return l.Latency + int64(min(math.Ceil(float64(bytes)*float64(l.PerMiB)/(1<<20)), maxSum))
}

// output returns the bytes that a stage sends to the next stage, or 0 for the last stage.
func (p *pricing) output(stage int) int64 {
	if stage < 0 || stage+1 >= len(p.stages) {
		return 0
	}
	return p.stages[stage].Output
}

// gradient returns the bytes that a stage sends to the preceding stage, or 0 for the first
// stage.
func (p *pricing) gradient(stage int) int64 {
	if stage < 1 || stage >= len(p.stages) {
		return 0
	}
	return p.stages[stage].Gradient
}

// forward sets the time and bytes of the forward of a block.
func (p *pricing) forward(s *jobShop, b int) {
	block, t := s.blocks[b], taskOf(b, forward)
	receives, sends := s.sends(b-1), s.sends(b)
	for stage := block.first; stage < block.end; stage++ {
		s.duration[t] += p.stages[stage].F
		allocated, freed := p.stages[stage].Saved+p.output(stage), p.output(stage-1)
		if stage == block.first && receives {
			allocated += p.output(stage - 1)
		}
		if stage+1 == block.end && sends {
			freed += p.output(stage)
		}
		s.bytes[t].add(allocated, freed)
	}
	if sends {
		s.lag[t] = p.hop(block, s.blocks[b+1], p.output(block.end-1))
	}
}

// backward sets the times and bytes of the backward of a block.
func (p *pricing) backward(s *jobShop, b int) {
	block, t, w := s.blocks[b], taskOf(b, backward), taskOf(b, weight)
	receives, sends := s.sends(b), s.sends(b-1)
	for stage := block.end - 1; stage >= block.first; stage-- {
		c := &p.stages[stage]
		allocated, freed := p.gradient(stage), p.gradient(stage+1)
		if stage+1 == block.end && receives {
			allocated += p.gradient(stage + 1)
		}
		if stage == block.first && sends {
			freed += p.gradient(stage)
		}
		s.duration[t] += c.Recompute
		if s.split {
			s.duration[t] += c.I
			s.duration[w] += c.W
			s.bytes[t].add(allocated+c.Carry, freed+c.FreedByI)
			s.bytes[w].add(0, c.Saved-c.FreedByI+c.Carry)
		} else {
			s.duration[t] += c.Backward()
			s.bytes[t].add(allocated, freed+c.Saved)
		}
	}
	if sends {
		s.lag[t] = p.hop(block, s.blocks[b-1], p.gradient(block.first))
	}
}

// add appends an action, which allocates before it frees.
func (c *memoryChange) add(allocated, freed int64) {
	c.peak = max(c.peak, c.net+allocated)
	c.net += allocated - freed
}

// splits reports whether every stage with a time for B also has times for I and W.
func (r *Request) splits() bool {
	return !slices.ContainsFunc(r.Costs.Stages, func(c simulate.StageCosts) bool {
		token, square := &c.PerToken, &c.PerSquare
		return float64(c.B)+token.B+square.B > 0 && float64(c.I+c.W)+token.I+token.W+square.I+square.W == 0
	})
}

// wholeIsFaster reports whether a stage has a B that takes less time than its I and W together.
func (r *Request) wholeIsFaster() bool {
	return slices.ContainsFunc(r.Costs.Stages, func(c simulate.StageCosts) bool { return c.B > 0 && c.B < c.I+c.W })
}

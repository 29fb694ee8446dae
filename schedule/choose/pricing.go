package choose

import (
	"math"
	"slices"

	"github.com/weir-ml/weir/schedule/simulate"
)

// pricing computes the times and bytes of the tasks of a shop. Its bytes are those of [simulate.Run]
// for a plan without transfers: a message to another rank is live while the tasks on both sides
// run.
type pricing struct {
	stages []simulate.StageCosts
	costs  *simulate.Costs
}

// newPricing returns the pricing of a request. If no stage saves any bytes each one is taken to save
// one, so that microbatches in flight are not free.
func newPricing(r *Request) pricing {
	p := pricing{stages: r.stages(), costs: r.Costs}
	if !r.saves() {
		for i := range p.stages {
			p.stages[i].Saved = 1
		}
	}
	return p
}

// stages returns the costs by stage.
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

// hop returns how long a message is on its way between blocks on two ranks, if it finds
// its link free.
func (p *pricing) hop(from, to block, bytes int64) int64 {
	l := p.costs.Link(from.rank, to.rank)
	return l.Latency + int64(min(math.Ceil(float64(bytes)*float64(l.PerMiB)/(1<<20)), maxSum))
}

// output returns the bytes that a stage hands on, gradient those that it hands back.
func (p *pricing) output(stage int) int64 {
	if stage < 0 || stage+1 >= len(p.stages) {
		return 0
	}
	return p.stages[stage].Output
}

func (p *pricing) gradient(stage int) int64 {
	if stage < 1 || stage >= len(p.stages) {
		return 0
	}
	return p.stages[stage].Gradient
}

// forward fills in the forward of a block.
func (p *pricing) forward(s *shop, b int) {
	own, t := s.blocks[b], taskOf(b, forward)
	receives, sends := s.crosses(b-1), s.crosses(b)
	for stage := own.first; stage < own.end; stage++ {
		s.time[t] += p.stages[stage].F
		born, dies := p.stages[stage].Saved+p.output(stage), p.output(stage-1)
		if stage == own.first && receives {
			born += p.output(stage - 1)
		}
		if stage+1 == own.end && sends {
			dies += p.output(stage)
		}
		s.bytes[t].then(born, dies)
	}
	if sends {
		s.lag[t] = p.hop(own, s.blocks[b+1], p.output(own.end-1))
	}
}

// backward fills in the parts of the backward of a block.
func (p *pricing) backward(s *shop, b int) {
	own, t, w := s.blocks[b], taskOf(b, backward), taskOf(b, weight)
	receives, sends := s.crosses(b), s.crosses(b-1)
	for stage := own.end - 1; stage >= own.first; stage-- {
		c := &p.stages[stage]
		born, dies := p.gradient(stage), p.gradient(stage+1)
		if stage+1 == own.end && receives {
			born += p.gradient(stage + 1)
		}
		if stage == own.first && sends {
			dies += p.gradient(stage)
		}
		s.time[t] += c.Recompute
		if s.split {
			s.time[t] += c.I
			s.time[w] += c.W
			s.bytes[t].then(born+c.Carry, dies+c.FreedByI)
			s.bytes[w].then(0, c.Saved-c.FreedByI+c.Carry)
		} else {
			s.time[t] += c.Backward()
			s.bytes[t].then(born, dies+c.Saved)
		}
	}
	if sends {
		s.lag[t] = p.hop(own, s.blocks[b-1], p.gradient(own.first))
	}
}

// then adds an action that runs after the others: its allocations come before its frees.
func (c *change) then(born, dies int64) {
	c.up = max(c.up, c.net+born)
	c.net += born - dies
}

// splits reports whether there are times of I and W: not where a stage has one of B
// alone.
func (r *Request) splits() bool {
	return !slices.ContainsFunc(r.Costs.Stages, func(c simulate.StageCosts) bool { return c.B > 0 && c.I+c.W == 0 })
}

// wholeIsFaster reports whether a backward takes less time in one than as I and W.
func (r *Request) wholeIsFaster() bool {
	return slices.ContainsFunc(r.Costs.Stages, func(c simulate.StageCosts) bool { return c.B > 0 && c.B < c.I+c.W })
}

package runner

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// entries returns how many consecutive items of a batch a rank holds entries of at most,
// without look-ahead. A source gives them in order, whatever the plan does, and the copies
// of a model take turns (Plan.Item). Where the rank's lowest stage of each copy takes its
// microbatches one after the other, entries are there for as long as the plan says, and
// those of a copy that is behind another one wait for it. Where it does not, all may wait.
func entries(plan *schedule.Plan, rank int) int {
	p := newPulls(plan, rank)
	for _, segment := range plan.Programs[rank] {
		if !p.segment(&segment) {
			return plan.Microbatches
		}
	}
	copies := max(plan.Placement.Copies, 1)
	return min(copies*(plan.Entries[rank]+p.apart), plan.Microbatches)
}

// pulls follows which microbatches a rank begins with.
type pulls struct {
	lanes []lane // by copy of the model that the rank has a stage of
	apart int    // by how many microbatches one of them was ahead of another one at most
}

// lane is the lowest stage of a copy of the model on a rank.
type lane struct {
	stage, from int // from which microbatch on
	taken       int // so many have begun
}

func newPulls(plan *schedule.Plan, rank int) *pulls {
	p := &pulls{}
	depth := plan.Placement.Depth()
	for first := 0; first < plan.Placement.Stages(); first += depth {
		if i := slices.Index(plan.Placement.Rank[first:first+depth], rank); i >= 0 {
			from, _ := plan.Span(first)
			p.lanes = append(p.lanes, lane{stage: first + i, from: from})
		}
	}
	return p
}

// segment goes through the first and the last repeat, and reports whether microbatches
// come one after the other. What lies between is linear, so no two copies are further
// apart there.
func (p *pulls) segment(s *schedule.Segment) bool {
	if s.Repeat < 1 {
		return true
	}
	before := slices.Clone(p.lanes)
	if !p.body(s.Body, 0) {
		return false
	}
	if s.Repeat == 1 {
		return true
	}
	for i := range p.lanes {
		each := p.lanes[i].taken - before[i].taken
		if each != 0 && each != s.Stride {
			return false
		}
		p.lanes[i].taken += each * (s.Repeat - 2)
	}
	return p.body(s.Body, s.Stride*(s.Repeat-1))
}

func (p *pulls) body(body []schedule.Action, shift int) bool {
	for _, action := range body {
		if action.Kind() != schedule.F {
			continue
		}
		i := slices.IndexFunc(p.lanes, func(l lane) bool { return l.stage == action.Stage() })
		if i < 0 {
			continue
		}
		if action.Microbatch()+shift != p.lanes[i].from+p.lanes[i].taken {
			return false
		}
		p.lanes[i].taken++
		for _, other := range p.lanes {
			p.apart = max(p.apart, p.lanes[i].taken-other.taken)
		}
	}
	return true
}

package simulate

import "github.com/weir-ml/weir/schedule/check"

// deadlock returns the error for a deadlock, with the same text as package check.
func (s *simulation) deadlock() error {
	if s.posts() || s.outline.Offloads || s.outline.Accumulates {
		return s.refusal()
	}
	still := check.Standstill{Outline: s.outline, Links: s.links, Ranks: s.machine.Ranks}
	for rank := range s.machine.Ranks {
		p := &s.machine.Ranks[rank]
		if p.Index > 0 && p.Program[p.Segment].Body[p.Index-1].Joined() { // both actions of a pair wait
			p.Index, p.Position = p.Index-1, p.Position-1
		}
	}
	return &check.Error{Plan: s.plan.Name, Faults: still.Faults()}
}

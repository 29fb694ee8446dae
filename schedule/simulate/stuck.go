package simulate

import (
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// stuck returns the error of ranks that wait for ever, in the words of Check.
func (s *simulation) stuck() error {
	if s.posts() {
		return s.refusal()
	}
	o := passes.NewOutline(s.plan)
	still := check.Standstill{Outline: &o, Links: passes.NewLinks(&o), Ranks: make([]passes.Cursor, len(s.ranks))}
	for rank := range s.ranks {
		r := &s.ranks[rank]
		p := passes.NewCursor(s.plan.Programs[rank], r.segment)
		p.Skip(r.repeat)
		p.Index, p.Position = r.index, r.position
		if p.Index > 0 && p.Program[p.Segment].Body[p.Index-1].Joined() { // both of a pair wait
			p.Index, p.Position = p.Index-1, p.Position-1
		}
		still.Ranks[rank] = p
	}
	return &check.Error{Plan: s.plan.Name, Faults: still.Faults()}
}

package schedule

// stuck returns the error of ranks that wait for ever, in the words of Check.
func (s *simulation) stuck() error {
	o := newOutline(s.plan)
	still := standstill{&o, newLinks(&o), make([]cursor, len(s.ranks))}
	for rank := range s.ranks {
		r := &s.ranks[rank]
		p := cursor{s.plan.Programs[rank], r.segment, r.repeat, r.index, r.position}
		if p.index > 0 && p.program[p.segment].Body[p.index-1].Joined() { // both of a pair wait
			p.index, p.position = p.index-1, p.position-1
		}
		still.ranks[rank] = p
	}
	return &PlanError{Plan: s.plan.Name, Faults: still.faults()}
}

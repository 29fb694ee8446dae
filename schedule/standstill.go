package schedule

import "slices"

// standstill is where the ranks of a plan are when none of them can go on.
type standstill struct {
	*outline
	links links
	ranks []cursor
}

// faults returns a fault for each circle of ranks that wait for each other.
func (s *standstill) faults() (list []Fault) {
	waiting := s.waiting()
	for first := true; len(waiting) > 0; first = false {
		cycle := FindCycle(waiting)
		if !first && !closed(cycle) {
			break // they wait for those that were found before
		}
		w := cycle[0]
		list = append(list, Fault{Code: Deadlock, Rank: w.Rank, Position: w.Position, Action: w.Action, Text: DescribeCycle(cycle), Cycle: cycle})
		waiting = slices.DeleteFunc(waiting, func(w Waiting) bool { return slices.Contains(cycle, w) })
	}
	return list
}

// waiting returns what each rank waits for that has not come to its end.
func (s *standstill) waiting() []Waiting {
	var list []Waiting
	for rank := range s.ranks {
		p := s.ranks[rank]
		a, ok := p.action()
		if !ok {
			continue
		}
		w := Waiting{Rank: rank, Position: p.position, Action: a.WithDrop(0).WithJoin(false)}
		var waits bool
		w.For, waits = s.awaited(a)
		if a.Joined() {
			w.With = p.partner().WithDrop(0)
			if !waits && w.With.Kind().Compute() {
				w.For, _ = s.awaited(w.With)
			}
		}
		w.ForRank = s.plan.Placement.Rank[w.For.Stage()]
		list = append(list, w)
	}
	return list
}

// awaited returns the action of another rank that an action needs, itself where there is
// none, and whether it is one that is still to come.
func (s *standstill) awaited(a Action) (Action, bool) {
	stage, kind, mb := a.Stage(), a.Kind(), a.Microbatch()
	var need Action
	switch kind {
	case F:
		if s.transfers || !s.crosses(stage-1) {
			return a, false
		}
		need = Act(F, stage-1, mb)
	case B, I:
		if s.transfers || !s.crosses(stage) {
			return a, false
		}
		if need = Act(I, stage+1, mb); s.position(need) < 0 {
			need = Act(B, stage+1, mb)
		}
	case SendF, SendB:
		return s.nextReceive(edge(a), mb), true
	case WaitF:
		need = Act(RecvF, stage+1, mb)
	case WaitB:
		need = Act(RecvB, stage-1, mb)
	default:
		need = sent(edge(a), int64(mb))
	}
	return need, s.position(need) >= s.ranks[s.home(need)].position
}

// position returns where an action is in the program of its rank, -1 if it is not there.
func (s *standstill) position(a Action) int64 { return findAction(s.plan, s.home(a), a).position }

// home returns the rank of an action's stage.
func (s *standstill) home(a Action) int { return s.plan.Placement.Rank[a.Stage()] }

// nextReceive returns the next receive of an edge's link that its receiver comes to, that
// of the microbatch on the edge if it comes to none.
func (s *standstill) nextReceive(e, mb int) Action {
	link := s.links.of[e]
	if link < 0 {
		return received(e, int64(mb))
	}
	p := s.ranks[s.links.to[link]]
	for p.segment < len(p.program) {
		begin := p
		for a, ok := p.action(); ok && p.segment == begin.segment; a, ok = p.action() {
			if kind := a.Kind(); (kind == RecvF || kind == RecvB) && a.Stage() < s.stages {
				if other := s.links.crossing(edge(a)); other >= 0 && s.links.of[other] == link {
					return a.WithDrop(0)
				}
			}
			if p.advance(); p.index == begin.index {
				break // a whole body without any
			}
		}
		if p.segment == begin.segment {
			p.segment, p.repeat, p.index = p.segment+1, 0, 0
		}
	}
	return received(e, int64(mb))
}

package check

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// Standstill is a configuration in which no rank can continue.
type Standstill struct {
	Outline *passes.Outline
	Links   passes.Links
	Ranks   []passes.Cursor
}

// Faults returns a fault for each waiting cycle or, if there is no cycle, for a path of waiting ranks
// that ends at a finished rank.
func (s *Standstill) Faults() []Fault { return faults(s.waiting()) }

// faults is Faults for the given waiting ranks.
func faults(waiting []waitgraph.Waiting) (list []Fault) {
	for first := true; len(waiting) > 0; first = false {
		cycle := waitgraph.FindCycle(waiting)
		if !first && !waitgraph.IsCycle(cycle) {
			break // these ranks wait for ranks of an earlier cycle
		}
		w := cycle[0]
		list = append(list, Fault{Code: Deadlock, Rank: w.Rank, Position: w.Position, Action: w.Action, Text: waitgraph.DescribeCycle(cycle), Cycle: cycle})
		waiting = slices.DeleteFunc(waiting, func(w waitgraph.Waiting) bool { return slices.Contains(cycle, w) })
	}
	return list
}

// waiting returns the ranks that have not reached the ends of their programs.
func (s *Standstill) waiting() []waitgraph.Waiting {
	var list []waitgraph.Waiting
	for rank := range s.Ranks {
		p := s.Ranks[rank]
		a, ok := p.Action()
		if !ok {
			continue
		}
		w := waitgraph.Waiting{Rank: rank, Position: p.Position, Action: a.WithDrop(0).WithJoin(false)}
		var waits bool
		w.For, waits = s.awaited(a)
		if a.Joined() {
			w.With = p.Partner().WithDrop(0)
			if !waits && w.With.Kind().Compute() {
				w.For, _ = s.awaited(w.With)
			}
		}
		w.ForRank = s.Outline.Plan.Placement.Rank[w.For.Stage()]
		list = append(list, w)
	}
	return list
}

// awaited returns the action on another rank on which a depends, and whether a must still wait for it.
// If a does not depend on another rank, awaited returns a itself and false.
func (s *Standstill) awaited(a schedule.Action) (schedule.Action, bool) {
	stage, kind, mb := a.Stage(), a.Kind(), a.Microbatch()
	var need schedule.Action
	switch kind {
	case schedule.F:
		if s.Outline.Transfers || !s.Outline.Crosses(stage-1) {
			return a, false
		}
		need = schedule.NewAction(schedule.F, stage-1, mb)
	case schedule.B, schedule.I:
		if s.Outline.Transfers || !s.Outline.Crosses(stage) {
			return a, false
		}
		if need = schedule.NewAction(schedule.I, stage+1, mb); s.position(need) < 0 {
			need = schedule.NewAction(schedule.B, stage+1, mb)
		}
	case schedule.SendF, schedule.SendB:
		return s.nextReceive(passes.Edge(a), mb), true
	case schedule.WaitF:
		need = schedule.NewAction(schedule.RecvF, stage+1, mb)
	case schedule.WaitB:
		need = schedule.NewAction(schedule.RecvB, stage-1, mb)
	default:
		need = passes.Sent(passes.Edge(a), int64(mb))
	}
	return need, s.position(need) >= s.Ranks[s.rankOf(need)].Position
}

// position returns the position of an action in the program of its rank, or -1 if the program does
// not contain it.
func (s *Standstill) position(a schedule.Action) int64 {
	return findAction(s.Outline.Plan, s.rankOf(a), a).position
}

// rankOf returns the rank of an action's stage.
func (s *Standstill) rankOf(a schedule.Action) int { return s.Outline.Plan.Placement.Rank[a.Stage()] }

// nextReceive returns the receiver's next receive from the link of an edge, without drops. If there is none, it
// returns the edge's receive of the microbatch.
func (s *Standstill) nextReceive(e, mb int) schedule.Action {
	link := s.Links.Of[e]
	if link < 0 {
		return passes.Received(e, int64(mb))
	}
	p := s.Ranks[s.Links.To[link]]
	for p.Segment < len(p.Program) {
		begin := p
		for a, ok := p.Action(); ok && p.Segment == begin.Segment; a, ok = p.Action() {
			if kind := a.Kind(); (kind == schedule.RecvF || kind == schedule.RecvB) && a.Stage() < s.Outline.Stages {
				if other := s.Links.Crossing(passes.Edge(a)); other >= 0 && s.Links.Of[other] == link {
					return a.WithDrop(0)
				}
			}
			if p.Advance(); p.SamePlace(&begin) {
				break // a whole repeat without a receive from the link
			}
		}
		if p.Segment == begin.Segment {
			p = passes.NewCursor(p.Program, p.Segment+1)
		}
	}
	return passes.Received(e, int64(mb))
}

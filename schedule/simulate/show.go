package simulate

import "github.com/weir-ml/weir/schedule"

// show passes an action to the visitor of the timeline.
func (s *simulation) show(rank int, a schedule.Action, position, start, end int64, copied Interval) {
	l := &s.levels[rank]
	l.apply(a, position)
	s.visit(Event{Rank: rank, Position: position, Action: a, Start: start, End: end, Live: l.classes, Far: l.far, Copied: copied})
}

// showPair passes a joined pair to the visitor whose second action is at the given position.
func (s *simulation) showPair(rank int, a, b schedule.Action, position, start, end int64) {
	l := &s.levels[rank]
	l.applyPair(a, b, position-1)
	s.visit(Event{Rank: rank, Position: position - 1, Action: a, Start: start, End: end, Live: l.classes, Far: l.far})
	s.visit(Event{Rank: rank, Position: position, Action: b, Start: start, End: end, Live: l.classes, Far: l.far})
}

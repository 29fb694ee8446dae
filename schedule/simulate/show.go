package simulate

import "github.com/weir-ml/weir/schedule"

// show reports an action to the timeline.
func (s *simulation) show(rank int, a schedule.Action, position, start, end int64, copied Interval) {
	l := &s.visited[rank]
	l.action(a, position)
	s.visit(Event{Rank: rank, Position: position, Action: a, Start: start, End: end, Live: l.classes, Far: l.far, Copied: copied})
}

// showPair reports a joined pair whose second action is at the given position.
func (s *simulation) showPair(rank int, a, b schedule.Action, position, start, end int64) {
	l := &s.visited[rank]
	l.pair(a, b, position-1)
	s.visit(Event{Rank: rank, Position: position - 1, Action: a, Start: start, End: end, Live: l.classes, Far: l.far})
	s.visit(Event{Rank: rank, Position: position, Action: b, Start: start, End: end, Live: l.classes, Far: l.far})
}

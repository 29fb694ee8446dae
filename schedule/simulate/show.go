package simulate

import "github.com/weir-ml/weir/schedule"

// show passes an action or a joined pair, which begins at the given position, to the visitor of the
// timeline.
func (s *simulation) show(rank int, position, start, end int64, copied Interval, group ...schedule.Action) {
	l := &s.levels[rank]
	l.apply(position, group...)
	for i, a := range group {
		s.visit(TimedAction{Rank: rank, Position: position + int64(i), Action: a, Start: start, End: end, Live: l.classes, Far: l.far, Copied: copied})
	}
}

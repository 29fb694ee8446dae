package simulate

import (
	"slices"
	"sort"
)

// delay is a wait of an action.
type delay struct {
	position, end int64 // the position of the action, and the end of the wait
	cause         cause
}

// cause is an action that ended a wait.
type cause struct {
	rank          int
	position, end int64
}

// maxStretches is the maximum number of stretches of a critical path.
const maxStretches = 1 << 16

// critical returns the critical path. It traces the path backwards: from the end of the last
// computation to the last wait on the same rank, then to the action that ended that wait, and so on.
func (s *simulation) critical() []Stretch {
	last := -1
	for rank := range s.ranks {
		if r := &s.ranks[rank]; r.started && (last < 0 || r.last > s.ranks[last].last) {
			last = rank
		}
	}
	if last < 0 {
		return nil
	}
	var path []Stretch
	at := Stretch{Rank: last, Last: s.ranks[last].final, End: s.ranks[last].last}
	for at.Last >= 0 && len(path) < maxStretches {
		waited := s.delays[at.Rank]
		i := sort.Search(len(waited), func(i int) bool { return waited[i].position > at.Last }) - 1
		if i < 0 {
			path = append(path, at)
			break
		}
		d := waited[i]
		at.First, at.Start = d.position, d.end
		path = append(path, at)
		at = Stretch{Rank: d.cause.rank, Last: d.cause.position, End: d.cause.end}
	}
	slices.Reverse(path)
	return path
}

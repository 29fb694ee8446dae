package simulate

import (
	"slices"
	"sort"
)

// delay is a wait of an action.
type delay struct {
	position, end   int64 // the position of the action, and the end of the wait
	rank            int   // the rank of the action that ended the wait
	cause, causeEnd int64 // the position and the end of that action
}

// Special values of cause: itself is the rank's own previous action, and ownPost-n is the rank's own
// action at position n.
const (
	itself  = -1
	ownPost = -2
)

// maxStretches is the maximum number of stretches of a critical path.
const maxStretches = 1 << 16

// delay records that the rank's next action waits for a parcel of the peer.
func (s *simulation) delay(r *simRank, rank, peer int, p *parcel) {
	d := delay{position: r.cursor.Position, end: p.ready, rank: peer, cause: p.cause, causeEnd: p.causeEnd}
	switch {
	case p.cause == itself:
		d.rank, d.cause, d.causeEnd = rank, r.cursor.Position-1, r.clock
	case p.cause <= ownPost:
		d.rank, d.cause = rank, ownPost-p.cause
	}
	s.delays[rank] = append(s.delays[rank], d)
}

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
		at = Stretch{Rank: d.rank, Last: d.cause, End: d.causeEnd}
	}
	slices.Reverse(path)
	return path
}

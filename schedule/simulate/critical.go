package simulate

import (
	"slices"
	"sort"
)

// delay is an action that had to wait, and the action whose end resolved the wait.
type delay struct {
	position, ready int64
	rank            int
	by, since       int64
}

// Special values of by: itself is the rank's own previous action, and ownPost-n is the rank's own
// action at position n.
const (
	itself  = -1
	ownPost = -2
)

// maxStretches is the maximum number of stretches of a critical path.
const maxStretches = 1 << 16

// delay records that the rank's next action waits for a parcel of the peer.
func (s *simulation) delay(r *simRank, rank, peer int, p *parcel) {
	d := delay{position: r.Position, ready: p.ready, rank: peer, by: p.by, since: p.since}
	switch {
	case p.by == itself:
		d.rank, d.by, d.since = rank, r.Position-1, r.clock
	case p.by <= ownPost:
		d.rank, d.by = rank, ownPost-p.by
	}
	s.waited[rank] = append(s.waited[rank], d)
}

// critical returns the critical path. It traces the path backwards: from the last end to the last
// wait on the same rank, then to the action that resolved that wait, and so on.
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
		waited := s.waited[at.Rank]
		i := sort.Search(len(waited), func(i int) bool { return waited[i].position > at.Last }) - 1
		if i < 0 {
			path = append(path, at)
			break
		}
		d := waited[i]
		at.First, at.Start = d.position, d.ready
		path = append(path, at)
		at = Stretch{Rank: d.rank, Last: d.by, End: d.since}
	}
	slices.Reverse(path)
	return path
}

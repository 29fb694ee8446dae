package hang

import (
	"fmt"
	"slices"

	"github.com/weir-ml/weir/internal/flightrec"
)

// stuck is the operation that a rank is in.
type stuck struct {
	*flightrec.Entry // nil if nothing is pending
	pending          []*flightrec.Entry
	group            *group
	// matched says that every other end has issued it, so that the rank waits for nobody, and
	// overtaken that other members have completed it, or the peer its send.
	matched, overtaken bool
	waits              []Wait
}

// pending returns the operation that holds up a rank, and its waits. This is the first pending
// operation that is not a send, because a rank continues after it posts a send, or else the first
// pending send.
func (j *job) pending(rank int) *stuck {
	s := &stuck{}
	for e := range j.entries(rank) {
		if e.Completed {
			continue
		}
		s.pending = append(s.pending, e)
		if s.Entry == nil || s.Kind == flightrec.Send && e.Kind != flightrec.Send {
			s.Entry, s.group = e, j.group(rank, e)
		}
	}
	switch {
	case s.Entry == nil:
	case s.Kind == flightrec.Collective:
		j.collective(rank, s)
	case s.Peer >= 0:
		j.transfer(rank, s)
	}
	return s
}

// transfer finds what a transfer waits for.
func (j *job) transfer(rank int, s *stuck) {
	sent, counted := j.sent(rank, s.Entry)
	if s.overtaken = sent; sent {
		return
	}
	s.matched = j.counterpart(rank, s.Entry) != nil
	s.waits = []Wait{{
		Rank: rank, For: int(s.Peer), In: describe(s.Entry), Group: s.group.name,
		Certain: s.Kind == flightrec.Recv && !s.matched && counted,
	}}
}

// sent reports whether the peer has completed the send that a receive waits for. The transfers
// of two ranks in a group meet in the order of their issue, so it counts them, and it can do so only
// if both dumps have the whole history.
func (j *job) sent(rank int, e *flightrec.Entry) (sent, counted bool) {
	own, peer := j.dumps[rank], j.dumps[int(e.Peer)]
	if e.Kind != flightrec.Recv || !own.Whole() || peer == nil || !peer.Whole() {
		return false, false
	}
	ahead, group := 0, j.group(rank, e)
	for o := range j.between(rank, int(e.Peer), flightrec.Recv) {
		if o == e {
			break
		}
		if j.group(rank, o) == group {
			ahead++
		}
	}
	for o := range j.between(int(e.Peer), rank, flightrec.Send) {
		if j.group(int(e.Peer), o) != group {
			continue
		}
		if ahead == 0 {
			return o.Completed, true
		}
		ahead--
	}
	return false, true
}

// counterpart returns a pending transfer of the peer that is the other end of one, nil if
// the peer has issued none.
func (j *job) counterpart(rank int, e *flightrec.Entry) *flightrec.Entry {
	for o := range j.between(int(e.Peer), rank, flightrec.Send+flightrec.Recv-e.Kind) {
		if !o.Completed {
			return o
		}
	}
	return nil
}

// collective finds the members that a collective waits for.
func (j *job) collective(rank int, s *stuck) {
	s.matched = true
	wait := func(other int, certain bool) {
		s.waits = append(s.waits, Wait{Rank: rank, For: other, In: describe(s.Entry), Group: s.group.name, Certain: certain})
	}
	for _, other := range s.group.ranks {
		m := s.group.members[other]
		switch {
		case other == rank:
		case m != nil && m.has(s.Number):
			s.overtaken, s.matched = true, false
		case m == nil || m.first != s.Number:
			s.matched = false
			wait(other, m != nil && !m.guessed)
		}
	}
	if n := len(s.group.ranks); s.matched && n > 1 { // all are in it: each one waits for the next
		wait(s.group.ranks[(slices.Index(s.group.ranks, rank)+1)%n], false)
	}
}

// describe names an operation.
func describe(e *flightrec.Entry) string {
	switch e.Kind {
	case flightrec.Send:
		return fmt.Sprintf("send to rank %d", e.Peer)
	case flightrec.Recv:
		return fmt.Sprintf("recv from rank %d", e.Peer)
	}
	return fmt.Sprintf("%s %d", e.Name, e.Number)
}

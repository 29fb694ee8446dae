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

// stand returns the operation that a rank is in, and what it waits for there.
func (j *job) stand(rank int) *stuck {
	s := &stuck{pending: j.pending(rank)}
	s.Entry = j.holding(rank, s.pending)
	if s.Entry == nil {
		return s
	}
	s.group = j.group(rank, s.Entry)
	if s.Kind == flightrec.Collective {
		j.collective(rank, s)
	} else {
		j.transfer(rank, s)
	}
	return s
}

// holding returns the first of the pending operations that holds a rank up. That is the
// first one, unless it is a send: a rank goes on behind a send, and is held up by the
// first of its receives and collectives. If there is none, by the send.
func (j *job) holding(rank int, pending []*flightrec.Entry) *flightrec.Entry {
	for _, e := range pending {
		if e.Kind != flightrec.Send {
			return e
		}
	}
	if len(pending) > 0 {
		return pending[0]
	}
	return nil
}

// transfer finds what a transfer waits for.
func (j *job) transfer(rank int, s *stuck) {
	if s.Peer < 0 {
		return
	}
	peer := int(s.Peer)
	sent, counted := j.sent(rank, s.Entry)
	if s.overtaken = sent; sent {
		return
	}
	s.matched = j.counterpart(rank, s.Entry) != nil
	s.waits = []Wait{{
		Rank: rank, For: peer, In: describe(s.Entry), Group: s.group.name,
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
	for i := range own.Entries {
		o := &own.Entries[i]
		if o == e {
			break
		}
		if o.Kind == flightrec.Recv && o.Peer == e.Peer && j.group(rank, o) == group {
			ahead++
		}
	}
	for i := range peer.Entries {
		o := &peer.Entries[i]
		if o.Kind == flightrec.Send && int(o.Peer) == rank && j.group(int(e.Peer), o) == group {
			if ahead == 0 {
				return !o.Pending(), true
			}
			ahead--
		}
	}
	return false, true
}

// counterpart returns a pending transfer of the peer that is the other end of one, nil if
// the peer has issued none.
func (j *job) counterpart(rank int, e *flightrec.Entry) *flightrec.Entry {
	other := flightrec.Recv
	if e.Kind == flightrec.Recv {
		other = flightrec.Send
	}
	d := j.dumps[int(e.Peer)]
	if d == nil {
		return nil
	}
	for i := range d.Entries {
		if o := &d.Entries[i]; o.Kind == other && int(o.Peer) == rank && o.Pending() {
			return o
		}
	}
	return nil
}

// collective finds the members that a collective waits for.
func (j *job) collective(rank int, s *stuck) {
	s.matched = true
	for _, other := range s.group.ranks {
		if other == rank {
			continue
		}
		m := s.group.members[other]
		switch {
		case m != nil && m.has(s.Number):
			s.overtaken = true
			s.matched = false
		case m == nil || m.first != s.Number:
			s.matched = false
			s.waits = append(s.waits, Wait{Rank: rank, For: other, In: describe(s.Entry), Group: s.group.name, Certain: m != nil && !m.guessed})
		}
	}
	if s.matched && len(s.group.ranks) > 1 { // all are in it: they wait for each other, each one for the next
		next := s.group.ranks[(slices.Index(s.group.ranks, rank)+1)%len(s.group.ranks)]
		s.waits = append(s.waits, Wait{Rank: rank, For: next, In: describe(s.Entry), Group: s.group.name})
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

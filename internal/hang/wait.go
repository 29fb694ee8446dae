package hang

import (
	"slices"

	"github.com/weir-ml/weir/internal/flightrec"
)

// block makes e the operation that holds up a rank, and finds its waits.
func (j *job) block(r *rank, e *flightrec.Entry) {
	r.blocked = blocked{Entry: e}
	g := r.group(e)
	wait := func(id int, certain bool) {
		r.waits = append(r.waits, Wait{Rank: r.id, For: id, In: describe(e), Group: g.name, Certain: certain})
	}
	if e.Kind != flightrec.Collective {
		if e.Peer < 0 {
			return
		}
		peer := j.byID[int(e.Peer)]
		var counted bool
		if r.overtaken, counted = r.sent(e, peer); !r.overtaken {
			r.matched = peer.counterpart(r, e) != nil
			wait(peer.id, e.Kind == flightrec.Recv && !r.matched && counted)
		}
		return
	}
	r.matched = true
	for _, id := range g.ranks {
		m := g.members[id]
		switch {
		case id == r.id:
		case m != nil && m.has(e.Number):
			r.overtaken, r.matched = true, false
		case m == nil || m.first != e.Number:
			r.matched = false
			wait(id, m != nil && !m.guessed)
		}
	}
	if n := len(g.ranks); r.matched && n > 1 { // all members are in the operation: each one waits for the next
		wait(g.ranks[(slices.Index(g.ranks, r.id)+1)%n], false)
	}
}

// sent reports whether the peer has completed the send that a receive of the rank waits for. Transfers
// between two ranks in a group are matched in the order in which they were issued, so sent counts
// them. It can do so only if both dumps contain the whole history.
func (r *rank) sent(e *flightrec.Entry, peer *rank) (sent, counted bool) {
	if e.Kind != flightrec.Recv || !r.dump.Whole() || !peer.dump.Whole() {
		return false, false
	}
	g := r.group(e)
	at := slices.Index(r.transfers(flightrec.Recv, peer, g), e)
	sends := peer.transfers(flightrec.Send, r, g)
	return at < len(sends) && sends[at].Completed, true
}

// transfers returns the transfers of the rank with a peer in a group.
func (r *rank) transfers(kind flightrec.Kind, peer *rank, g *group) (list []*flightrec.Entry) {
	for i := range r.dump.Entries {
		if e := &r.dump.Entries[i]; e.Kind == kind && int(e.Peer) == peer.id && r.group(e) == g {
			list = append(list, e)
		}
	}
	return list
}

// counterpart returns the rank's pending transfer that is the other end of the peer's transfer e, or
// nil if the rank has not issued one.
func (r *rank) counterpart(peer *rank, e *flightrec.Entry) *flightrec.Entry {
	for _, o := range r.pending {
		if o.Kind == flightrec.Send+flightrec.Recv-e.Kind && int(o.Peer) == peer.id {
			return o
		}
	}
	return nil
}

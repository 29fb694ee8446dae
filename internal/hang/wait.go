package hang

import (
	"slices"

	"github.com/weir-ml/weir/internal/flightrec"
)

// block makes e the operation that holds up a rank, and finds its waits.
func (j *job) block(r *rank, e *flightrec.Entry) {
	r.blocked = blocked{Entry: e}
	g := r.group(e)
	wait := func(e *flightrec.Entry, id int, certain bool) {
		r.waits = append(r.waits, Wait{Rank: r.id, For: id, In: describe(e), Group: g.name, Certain: certain && !e.Unseen, kind: e.Kind})
	}
	if e.Kind != flightrec.Collective {
		parts := []*flightrec.Entry{e}
		if e.Batch > 0 { // operations of a batch end together, so all that lack their other end hold it up
			parts = slices.DeleteFunc(slices.Clone(r.pending), func(o *flightrec.Entry) bool { return o.Batch != e.Batch })
		}
		for _, e := range parts {
			if e.Peer < 0 {
				for _, id := range g.ranks {
					if id != r.id {
						wait(e, id, false)
					}
				}
				continue
			}
			ends, counted := j.ends(r, e)
			var end *flightrec.Entry // the other one
			if at := slices.Index(r.lanes[laneOf(r, e)], e); counted && at < len(ends) {
				end = ends[at]
			}
			switch {
			case e.Kind == flightrec.Recv && end != nil && end.Completed && !end.Unseen && len(parts) == 1:
				r.overtaken = true
			case end == nil && (counted || j.byID[int(e.Peer)].counterpart(r, e) == nil):
				wait(e, int(e.Peer), counted && e.Kind == flightrec.Recv)
			}
		}
		if r.waits == nil && !r.overtaken && e.Peer >= 0 {
			r.matched = true
			wait(e, int(e.Peer), false)
		}
		return
	}
	r.matched = true
	reached := 1
	for _, id := range g.ranks {
		if m := g.members[id]; id != r.id && m != nil && (m.has(e.Number) || m.first == e.Number) {
			reached++
		}
	}
	for _, id := range g.ranks {
		m := g.members[id]
		switch {
		case id == r.id:
		case m != nil && (m.uncounted || g.members[r.id].uncounted):
			if m.first < 0 {
				r.matched = false
				wait(e, id, false)
			}
		case m != nil && m.has(e.Number):
			r.overtaken, r.matched = true, false
		case m == nil || m.first != e.Number: // the few that issued an operation may be those that should not have
			r.matched = false
			wait(e, id, m != nil && m.lacks(e.Number) && 2*reached >= len(g.ranks))
		}
	}
	if n := len(g.ranks); r.matched && n > 1 { // all members are in the operation: each one waits for the next
		wait(e, g.ranks[(slices.Index(g.ranks, r.id)+1)%n], false)
	}
}

// lane identifies the transfers of a rank in one direction with a peer in a group. Those of both ranks are
// matched in the order in which they were issued.
type lane struct {
	group *group
	kind  flightrec.Kind
	peer  int32
}

func laneOf(r *rank, e *flightrec.Entry) lane { return lane{r.group(e), e.Kind, e.Peer} }

// ends returns the peer's transfers that are the other ends of the rank's in the lane of e, one by one. They are
// counted only if both dumps contain the whole history, and if no receive is from any rank.
func (j *job) ends(r *rank, e *flightrec.Entry) (ends []*flightrec.Entry, counted bool) {
	peer, g := j.byID[int(e.Peer)], r.group(e)
	counted = r.dump.Whole() && peer.dump.Whole()
	for _, one := range []*rank{r, peer} {
		counted = counted && one.lanes[lane{g, flightrec.Recv, -1}] == nil
	}
	return peer.lanes[lane{g, flightrec.Send + flightrec.Recv - e.Kind, int32(r.id)}], counted
}

// counterpart returns the rank's pending transfer that is the other end of the peer's transfer e, or
// nil if the rank has not issued one.
func (r *rank) counterpart(peer *rank, e *flightrec.Entry) *flightrec.Entry {
	for _, o := range r.pending {
		if o.Kind == flightrec.Send+flightrec.Recv-e.Kind && r.group(o) == peer.group(e) && (int(o.Peer) == peer.id || o.Peer < 0) {
			return o
		}
	}
	return nil
}

package hang

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/cmd/weir/internal/flightrec"
)

// block makes e the operation that holds up a rank, and finds its waits.
func (j *job) block(r *rank, e *flightrec.Operation) {
	r.blocked = blocked{Operation: e}
	g := r.group(e)
	wait := func(e *flightrec.Operation, id int, certain bool) {
		r.blocked.waits = append(r.blocked.waits, Wait{Rank: r.id, For: id, In: describe(e), Group: g.name, Certain: certain && !e.Unseen, kind: e.Kind})
	}
	if e.Kind != flightrec.Collective {
		parts := []*flightrec.Operation{e}
		if e.Batch > 0 { // operations of a batch end together, so each one without its other end holds up the batch
			parts = slices.DeleteFunc(slices.Clone(r.pending), func(o *flightrec.Operation) bool { return o.Batch != e.Batch })
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
			end, counted := j.end(r, e)
			switch {
			case e.Kind == flightrec.Recv && end != nil && end.Completed && !end.Unseen && len(parts) == 1:
				r.blocked.overtaken = true
			case end == nil && (counted || j.byID[int(e.Peer)].counterpart(r, e) == nil):
				wait(e, int(e.Peer), counted && e.Kind == flightrec.Recv && whole(r, j.byID[int(e.Peer)]))
			}
		}
		if r.blocked.waits == nil && !r.blocked.overtaken && e.Peer >= 0 {
			r.blocked.matched = true
			wait(e, int(e.Peer), false)
		}
		return
	}
	r.blocked.matched = true
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
				r.blocked.matched = false
				wait(e, id, false)
			}
		case m != nil && m.has(e.Number):
			r.blocked.overtaken, r.blocked.matched = true, false
		case m == nil || m.first != e.Number: // If only a few members issued an operation, they may be the ones at fault.
			r.blocked.matched = false
			wait(e, id, m != nil && m.lacks(e.Number) && 2*reached >= len(g.ranks))
		}
	}
	if n := len(g.ranks); r.blocked.matched && n > 1 { // all members are in the operation: each one waits for the next
		wait(e, g.ranks[(slices.Index(g.ranks, r.id)+1)%n], false)
	}
}

// lane identifies the transfers of a rank in one direction with a peer in a group. The transfers of both ranks
// are matched in the order in which they were issued.
type lane struct {
	group *group
	kind  flightrec.OpKind
	peer  int32
}

func laneOf(r *rank, e *flightrec.Operation) lane { return lane{r.group(e), e.Kind, e.Peer} }

// whole reports whether the dumps of two ranks contain the whole history.
func whole(r, peer *rank) bool { return r.dump.Whole() && peer.dump.Whole() }

// end returns the peer's transfer that is the other end of e, or nil if the peer has not issued it. Transfers
// are counted from the beginning of the job if both dumps contain the whole history. If the dumps do not, and
// their backend does not report when transfers end, transfers are counted from a collective at which sends and
// receives balance; such a count is not a proof. counted is false, and end is nil, if transfers cannot be counted,
// as when a receive is from any rank.
func (j *job) end(r *rank, e *flightrec.Operation) (end *flightrec.Operation, counted bool) {
	peer, g := j.byID[int(e.Peer)], r.group(e)
	for _, one := range []*rank{r, peer} {
		if !one.dump.Complete || one.lanes[lane{g, flightrec.Recv, -1}] != nil {
			return nil, false
		}
	}
	own, theirs := r.lanes[laneOf(r, e)], peer.lanes[lane{g, flightrec.Send + flightrec.Recv - e.Kind, int32(r.id)}]
	after := func(entries []*flightrec.Operation, record int64) int {
		at, _ := slices.BinarySearchFunc(entries, record, func(e *flightrec.Operation, record int64) int { return cmp.Compare(e.Record, record) })
		return at
	}
	at, first := after(own, e.Record), 0
	if !whole(r, peer) {
		ends := j.joint(r, peer)
		if len(ends) < 2 || e.Record < ends[1][0] || r.dump.Backend+peer.dump.Backend == "" {
			return nil, false // The states tell which transfers ended, or there is no collective to count from.
		}
		begun, begunThere := after(own, ends[1][0]), after(theirs, ends[1][1])
		if begun-after(own, ends[0][0]) != begunThere-after(theirs, ends[0][1]) {
			return nil, false // the ranks do not end their transfers before a collective
		}
		at, first = at-begun, begunThere
	}
	if first+at < len(theirs) {
		return theirs[first+at], true
	}
	return nil, true
}

// joint returns the records, on each of the two ranks, of the last two collectives that both have completed, or of
// fewer if there are not two. All members have begun such a collective before one of them completes it.
func (j *job) joint(r, peer *rank) [][2]int64 {
	if known, found := r.joint[peer]; found {
		return known
	}
	type number struct {
		group  *group
		number int64
	}
	theirs := map[number]int64{}
	for i := range peer.dump.Operations {
		if e := &peer.dump.Operations[i]; e.Kind == flightrec.Collective && e.Completed && !e.Unseen {
			theirs[number{peer.group(e), e.Number}] = e.Record
		}
	}
	var list [][2]int64
	for i := len(r.dump.Operations) - 1; i >= 0 && len(list) < 2; i-- {
		e := &r.dump.Operations[i]
		if record, found := theirs[number{r.group(e), e.Number}]; found && e.Kind == flightrec.Collective && e.Completed && !e.Unseen && !rooted(e) {
			list = append(list, [2]int64{e.Record, record})
		}
	}
	slices.Reverse(list)
	r.joint[peer] = list
	return list
}

// counterpart returns the rank's pending transfer that is the other end of the peer's transfer e, or
// nil if the rank has not issued one.
func (r *rank) counterpart(peer *rank, e *flightrec.Operation) *flightrec.Operation {
	for _, o := range r.pending {
		if o.Kind == flightrec.Send+flightrec.Recv-e.Kind && r.group(o) == peer.group(e) && (int(o.Peer) == peer.id || o.Peer < 0) {
			return o
		}
	}
	return nil
}

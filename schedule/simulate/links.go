package simulate

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// transmit puts a message on the wire as soon as its link is free.
func (s *simulation) transmit(r *simRank, d *actionCost, key int64) {
	s.carry(d, parcel{key: key, ready: r.clock, by: r.Position, since: r.clock})
}

// carry puts a parcel that is ready on the wire as soon as its link is free, and into the mailbox of
// the actions that wait for it, if there are any.
func (s *simulation) carry(d *actionCost, p parcel) {
	link := &s.free[d.link]
	p.wire = p.ready
	if s.later(link.until, p.ready) {
		p.wire = link.until
	} else {
		link.by, link.since = p.by, p.since
	}
	link.until = p.wire + d.wire
	p.there = link.until + s.routes[d.link].latency
	p.ready, p.by, p.since = p.there, link.by, link.since
	if d.sends >= 0 {
		s.boxes[d.sends].put(p)
	}
}

// enter sends a message as soon as the link has room, and reports false if the rank must wait. With
// capacity 0, the send ends with its receive, which has put the message on the wire.
func (s *simulation) enter(r *simRank, rank int, d *actionCost, key int64) bool {
	link, way := &s.free[d.link], &s.routes[d.link]
	switch {
	case s.capacity == schedule.Unlimited:
	case s.later(int64(link.room), 0):
		link.room--
	default:
		receipt := s.boxes[way.room].first()
		if receipt == nil {
			return false
		}
		s.wait(r, rank, way.to, receipt)
		s.boxes[way.room].take()
	}
	if s.capacity != 0 {
		s.transmit(r, d, key)
	}
	return true
}

// offered returns the message that the sender of a link offers with capacity 0, if its next action
// is a send on the link without a receipt.
func (s *simulation) offered(r *simRank, d *actionCost) (p parcel, ok bool) {
	way := &s.routes[d.link]
	from := &s.ranks[way.from]
	a, more := from.Action()
	send := s.costOf(a)
	if !more || send.does != doSend || send.link != d.link || s.boxes[way.room].first() != nil {
		return p, false
	}
	p = parcel{key: keyOf(a) + send.offset, wire: from.clock, by: from.Position - 1, since: from.clock}
	if s.later(r.clock, p.wire) {
		p.wire, p.by = r.clock, itself
	}
	p.there = p.wire + d.wire + way.latency
	p.ready = p.there
	return p, true
}

// receive takes a message, which must be the first message of its link, and puts receipts for its
// send and wait. It reports false if the rank must wait.
func (s *simulation) receive(r *simRank, rank int, a schedule.Action, d *actionCost) bool {
	way := &s.routes[d.link]
	var message parcel
	if s.capacity == 0 {
		var ok bool
		if message, ok = s.offered(r, d); !ok {
			return false
		}
	} else {
		p := s.boxes[d.awaits].first()
		if p == nil {
			return false
		}
		message = *p
	}
	if message.key != keyOf(a) {
		s.mixedUp(rank, a, way, message.key)
		return false
	}
	if s.capacity != 0 {
		s.boxes[d.awaits].take()
	}
	s.wait(r, rank, way.from, &message)
	message.ready, message.by, message.since = r.clock, r.Position, r.clock
	if way.room >= 0 {
		s.boxes[way.room].put(message)
	}
	if d.sends >= 0 {
		s.boxes[d.sends].put(message)
	}
	return true
}

// posted posts a send or a receive. The message goes on the wire when both ends are posted and the
// link is free. Until then an end stays in its mailbox; its wire field holds the mailbox of the
// message instead of a time. If both ends are posted at the same time, the receive counts for the
// critical path.
func (s *simulation) posted(r *simRank, d *actionCost, key int64) {
	end, sends := parcel{key: key, wire: int64(d.sends), ready: r.clock, by: r.Position, since: r.clock}, int64(1)
	if d.posts == s.routes[d.link].awaited {
		end.by, sends = ownPost-r.Position, 0
	}
	other := s.boxes[d.awaits].first()
	if other == nil {
		s.boxes[d.posts].put(end)
		return
	}
	if other.key != key || other.wire != end.wire {
		s.fault = s.refusal()
		return
	}
	if s.later(other.ready+sends, end.ready) {
		end = *other
	}
	s.boxes[d.awaits].take()
	s.carry(d, end)
}

// wait advances the clock of the rank to the time at which the parcel of a peer is ready.
func (s *simulation) wait(r *simRank, rank, peer int, p *parcel) {
	if !s.later(p.ready, r.clock) {
		return
	}
	since := r.clock
	if s.later(p.wire, since) {
		since = p.wire
	}
	if s.later(p.there, since) && r.started {
		r.waits[waitWire] += p.there - since
	}
	if s.chains {
		s.delay(r, rank, peer, p)
	}
	r.clock = p.ready
}

// later reports whether a is greater than b. If repeats are skipped, every comparison that affects
// the simulation goes through it.
func (s *simulation) later(a, b int64) bool {
	if s.skips != nil {
		s.skips.Note(a - b)
	}
	return a > b
}

// mixedUp sets the fault of a receive that meets the message of another receive.
func (s *simulation) mixedUp(rank int, a schedule.Action, way *route, key int64) {
	sent := schedule.Action(key)<<schedule.StageShift | a&(1<<schedule.StageShift-1<<schedule.KindShift)
	s.fault = &check.Error{Plan: s.plan.Name, Faults: []check.Fault{{
		Code: check.Pairing, Rank: rank, Position: s.ranks[rank].Position, Action: a,
		Text: fmt.Sprintf("Rank %d, action %d: %v finds the message for %v first, because rank %d sent that message earlier; send and receive in the same order.",
			rank, s.ranks[rank].Position, a, sent, way.from),
	}}}
}

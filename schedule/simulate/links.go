package simulate

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// transmit puts a message on the wire as soon as its link is free.
func (s *simulation) transmit(r *simRank, d *actionCost, key int64) {
	s.deliver(d, parcel{key: key, ready: r.clock, cause: r.cursor.Position, causeEnd: r.clock})
}

// deliver puts a parcel that is ready on the wire as soon as its link is free, and into its mailbox if
// actions wait for it.
func (s *simulation) deliver(d *actionCost, p parcel) {
	link := &s.linkStates[d.link]
	p.departure = p.ready
	if s.later(link.freeAt, p.ready) {
		p.departure = link.freeAt
	} else {
		link.cause, link.causeEnd = p.cause, p.causeEnd
	}
	link.freeAt = p.departure + s.wireOf(d, p.key)
	p.arrival = link.freeAt + s.routes[d.link].latency
	p.ready, p.cause, p.causeEnd = p.arrival, link.cause, link.causeEnd
	if d.sendBox != 0 {
		s.boxes[d.sendBox].put(p)
	}
	if d.receiptBox != 0 { // for the sender, to which a post of the receiver is that of its peer
		p.cause = ownPost - p.cause
		s.boxes[d.receiptBox].put(p)
	}
}

// send sends a message as soon as the link has a free slot. It returns false if the rank must wait.
// With capacity 0, the send ends together with its receive, which has put the message on the wire.
func (s *simulation) send(r *simRank, rank int, d *actionCost, key int64) bool {
	link, route := &s.linkStates[d.link], &s.routes[d.link]
	switch {
	case s.capacity == schedule.Unlimited:
	case s.later(int64(link.slots), 0):
		link.slots--
	default:
		receipt := s.boxes[route.receipts].first()
		if receipt == nil {
			return false
		}
		s.wait(r, rank, route.to, receipt)
		s.boxes[route.receipts].take()
	}
	if s.capacity != 0 {
		s.transmit(r, d, key)
	}
	return true
}

// offered returns the next message on a link with capacity 0, if the sender's next action is a send
// on the link whose message has not been received.
func (s *simulation) offered(r *simRank, d *actionCost) (p parcel, ok bool) {
	route := &s.routes[d.link]
	from := &s.ranks[route.from]
	a, more := from.cursor.Action()
	send := s.costOf(a)
	if !more || send.op != opSend || send.link != d.link || s.boxes[route.receipts].first() != nil {
		return p, false
	}
	p = parcel{key: keyOf(a) + send.offset, departure: from.clock, cause: from.cursor.Position - 1, causeEnd: from.clock}
	if s.later(r.clock, p.departure) {
		p.departure, p.cause = r.clock, itself
	}
	p.arrival = p.departure + s.wireOf(d, p.key) + route.latency
	p.ready = p.arrival
	return p, true
}

// receive takes the first message on the link, which must be the message for this receive, and puts
// receipts for the send and the wait of the message into their mailboxes. It returns false if the rank
// must wait.
func (s *simulation) receive(r *simRank, rank int, a schedule.Action, d *actionCost) bool {
	route := &s.routes[d.link]
	var message parcel
	if s.capacity == 0 {
		var ok bool
		if message, ok = s.offered(r, d); !ok {
			return false
		}
	} else {
		p := s.boxes[d.awaitBox].first()
		if p == nil {
			return false
		}
		message = *p
	}
	if message.key != keyOf(a) {
		s.mixedUp(rank, a, route, message.key)
		return false
	}
	if s.capacity != 0 {
		s.boxes[d.awaitBox].take()
	}
	s.wait(r, rank, route.from, &message)
	message.ready, message.cause, message.causeEnd = r.clock, r.cursor.Position, r.clock
	if route.receipts != 0 {
		s.boxes[route.receipts].put(message)
	}
	if d.sendBox != 0 {
		s.boxes[d.sendBox].put(message)
	}
	return true
}

// postTransfer posts a send or a receive. The message goes on the wire when both ends are posted and
// the link is free. Until then, the end posted first stays in its mailbox, with the message's mailbox
// in its departure field instead of a time. If both ends are posted at the same time, the critical
// path continues at the receive.
func (s *simulation) postTransfer(r *simRank, d *actionCost, key int64) {
	posted, sends := parcel{key: key, departure: int64(d.sendBox), ready: r.clock, cause: r.cursor.Position, causeEnd: r.clock}, int64(1)
	if d.postBox == s.routes[d.link].postedReceives {
		posted.cause, sends = ownPost-r.cursor.Position, 0
	}
	other := s.boxes[d.awaitBox].first()
	if other == nil {
		s.boxes[d.postBox].put(posted)
		return
	}
	if other.key != key || other.departure != posted.departure {
		s.fault = s.refusal()
		return
	}
	if s.later(other.ready+sends, posted.ready) {
		posted = *other
	}
	s.boxes[d.awaitBox].take()
	s.deliver(d, posted)
}

// wait advances the clock of the rank to the time at which the parcel of a peer is ready.
func (s *simulation) wait(r *simRank, rank, peer int, p *parcel) {
	if !s.later(p.ready, r.clock) {
		return
	}
	since := r.clock
	if s.later(p.departure, since) {
		since = p.departure
	}
	if s.later(p.arrival, since) && r.started {
		r.waits[waitWire] += p.arrival - since
	}
	if s.recordsDelays {
		s.delay(r, rank, peer, p)
	}
	r.clock = p.ready
}

// later reports whether a is greater than b, and records the comparison if repeats are skipped. Every
// comparison of times or slots that affects the simulation must use it.
//
// Keys of parcels are compared only for equality, without later. In cycles that are skipped, an
// awaited key equals the key of the first parcel in its mailbox, because otherwise the simulation has
// a fault or sets hiddenState, and skips nothing. Both keys change by a constant from cycle to cycle
// and are equal in two cycles, so they are equal in all cycles. This argument does not hold for the
// first copy in a reloadBox, because a computation ignores it if it belongs to another microbatch.
// Therefore Step uses later for it.
func (s *simulation) later(a, b int64) bool {
	if s.skips != nil {
		s.skips.trend.Note(a - b)
	}
	return a > b
}

// mixedUp sets the fault for a receive that finds the message for another receive.
func (s *simulation) mixedUp(rank int, a schedule.Action, route *route, key int64) {
	sent := schedule.Action(key)<<schedule.StageShift | a&(1<<schedule.StageShift-1<<schedule.KindShift)
	s.fault = &check.Error{Plan: s.plan.Name, Faults: []check.Fault{{
		Code: check.Pairing, Rank: rank, Position: s.ranks[rank].cursor.Position, Action: a,
		Text: fmt.Sprintf("Rank %d, action %d: %v finds the message for %v first, because rank %d sent that message earlier; send and receive in the same order.",
			rank, s.ranks[rank].cursor.Position, a, sent, route.from),
	}}}
}

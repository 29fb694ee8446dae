package simulate

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// transmit puts a message on the wire as soon as its link is free.
func (s *simulation) transmit(r *simRank, d *actionCost, key int64) {
	s.deliver(d, parcel{key: key, ready: r.clock, cause: r.now()}, d.link, d.link)
}

// now returns the rank's next action, at the present time, as a cause.
func (r *simRank) now() cause { return cause{r.rank, r.cursor.Position, r.clock} }

// before returns the action before the rank's next one as a cause.
func (r *simRank) before() cause { return cause{r.rank, r.cursor.Position - 1, r.clock} }

// deliver transmits a ready parcel as soon as its link is free, or the queues of both ends are, and puts it into its
// mailboxes.
func (s *simulation) deliver(d *actionCost, p parcel, lines ...int) {
	p.departure = p.ready
	for _, i := range lines {
		if link := &s.linkStates[i]; s.later(link.freeAt, p.departure) {
			p.departure, p.cause = link.freeAt, link.cause
		}
	}
	free := p.departure + s.wireOf(d, p.key)
	for _, i := range lines {
		s.linkStates[i].freeAt, s.linkStates[i].cause = free, p.cause
	}
	p.arrival = free + s.routes[d.link].latency
	p.ready = p.arrival
	for _, box := range [...]int{d.sendBox, d.receiptBox} {
		if box != 0 {
			s.boxes[box].put(p)
		}
	}
}

// send sends a message as soon as the link has a free slot. It returns false if the rank must wait.
// With capacity 0, the send ends together with its receive, which has put the message on the wire.
func (s *simulation) send(r *simRank, d *actionCost, key int64) bool {
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
		s.wait(r, receipt)
		s.boxes[route.receipts].take()
	}
	if s.capacity != 0 {
		s.transmit(r, d, key)
	}
	return true
}

// offered returns the next message on a link with capacity 0. It returns false unless the sender's next
// action is a send on the link whose message has not been received.
func (s *simulation) offered(r *simRank, d *actionCost) (p parcel, ok bool) {
	route := &s.routes[d.link]
	from := &s.ranks[route.from]
	a, more := from.cursor.Action()
	send := s.costOf(a)
	if !more || send.op != opSend || send.link != d.link || s.boxes[route.receipts].first() != nil {
		return p, false
	}
	p = parcel{key: keyOf(a) + send.offset, departure: from.clock, cause: from.before()}
	if s.later(r.clock, p.departure) {
		p.departure, p.cause = r.clock, r.before()
	}
	p.arrival = p.departure + s.wireOf(d, p.key) + route.latency
	p.ready = p.arrival
	return p, true
}

// receive takes the first message on the link, and puts receipts for the send and the wait of the message
// into their mailboxes. It returns false if the rank must wait, or if the message is for another receive,
// which is a fault.
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
	s.wait(r, &message)
	message.ready, message.cause = r.clock, r.now()
	if route.receipts != 0 {
		s.boxes[route.receipts].put(message)
	}
	if d.sendBox != 0 {
		s.boxes[d.sendBox].put(message)
	}
	return true
}

// post posts a send or a receive: it puts a parcel into its queue, whose departure field holds actionCost.end instead
// of a time.
func (s *simulation) post(r *simRank, d *actionCost, key int64) {
	s.boxes[d.postBox].put(parcel{key: key, departure: d.end, ready: r.clock, cause: r.now()})
	s.meet(d.postBox)
}

// meet transmits messages as long as the first transfer in a queue and the first transfer in its peer's queue belong to
// the same message. Each transmitted message may allow others in both queues to begin. If both ends are posted at the
// same time, the critical path continues at the receive.
func (s *simulation) meet(box int) {
	for first := s.boxes[box].first(); first != nil && s.fault == nil; first = s.boxes[box].first() {
		d := &s.actionCosts[first.departure/2]
		send, receive := s.boxes[d.postBox].first(), s.boxes[d.awaitBox].first()
		if send == nil || receive == nil || send.departure/2 != receive.departure/2 {
			return
		}
		if send.key != receive.key {
			s.fault = s.refusal()
			return
		}
		p := *receive
		if s.later(send.ready, receive.ready) {
			p = *send
		}
		s.boxes[d.postBox].take()
		s.boxes[d.awaitBox].take()
		s.deliver(d, p, len(s.routes)+d.queues[0], len(s.routes)+d.queues[1])
		if box == d.postBox {
			s.meet(d.awaitBox)
		} else {
			s.meet(d.postBox)
		}
	}
}

// wait advances the clock of the rank to the time at which a parcel is ready.
func (s *simulation) wait(r *simRank, p *parcel) {
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
		s.delays[r.rank] = append(s.delays[r.rank], delay{position: r.cursor.Position, end: p.ready, cause: p.cause})
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

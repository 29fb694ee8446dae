package simulate

import "github.com/weir-ml/weir/schedule"

// parcel is a message, copy or exchange in flight, the receipt of a message, or a posted transfer (see post).
type parcel struct {
	key       int64 // stage and microbatch of the action that takes the parcel: see keyOf
	departure int64 // the time at which the parcel goes on the wire
	arrival   int64 // the time at which the parcel arrives
	ready     int64 // the time at which a waiting rank can continue
	cause     cause // for the critical path: the action that determines the time of the parcel
}

// keyOf returns the stage and microbatch of an action as one number, with the stage in the lower
// bits.
func keyOf(a schedule.Action) int64 { return int64(a >> schedule.StageShift) }

// add returns the parcel with n times step added.
func (p parcel) add(step parcel, n int64) parcel {
	p.key += n * step.key
	p.departure += n * step.departure
	p.arrival += n * step.arrival
	p.ready += n * step.ready
	return p
}

// sub returns the difference p - q.
func (p parcel) sub(q parcel) parcel {
	return parcel{key: p.key - q.key, departure: p.departure - q.departure, arrival: p.arrival - q.arrival, ready: p.ready - q.ready}
}

// mailbox is a queue of parcels.
type mailbox struct {
	ring       []parcel // the length is a power of two
	head, tail uint     // the numbers of the first parcel and of the next parcel to be appended

	// The progressions represent the parcels of skipped repeats. Each progression precedes the parcel
	// whose number is its boundary. boundary is the boundary of the first progression, or noBoundary.
	progressions []progression
	boundary     uint
}

// progression represents repeated parcels: the parcels in first, then the same parcels with step added
// once, then twice, and so on.
type progression struct {
	first, step []parcel
	done, total int64 // the number of repeats expanded so far, and the number of all repeats
	boundary    uint
}

// noBoundary is not the number of any parcel.
const noBoundary = ^uint(0)

// newMailbox returns an empty mailbox. Its parcel numbers start in the middle of the range, so that
// parcels can be put back before the first one.
func newMailbox() mailbox {
	return mailbox{head: noBoundary / 2, tail: noBoundary / 2, boundary: noBoundary}
}

// put appends a parcel.
func (b *mailbox) put(p parcel) {
	if b.tail-b.head == uint(len(b.ring)) {
		b.grow()
	}
	*b.at(b.tail) = p
	b.tail++
}

// putBack inserts a parcel before the first one.
func (b *mailbox) putBack(p parcel) {
	if b.tail-b.head == uint(len(b.ring)) {
		b.grow()
	}
	b.head--
	*b.at(b.head) = p
}

// first returns the first parcel, or nil if the mailbox is empty.
func (b *mailbox) first() *parcel {
	if b.head == b.boundary {
		b.expandProgression()
	}
	if b.head == b.tail {
		return nil
	}
	return b.at(b.head)
}

// take removes the first parcel.
func (b *mailbox) take() { b.head++ }

// at returns the parcel with number i.
func (b *mailbox) at(i uint) *parcel { return &b.ring[i&uint(len(b.ring)-1)] }

// grow doubles the ring.
func (b *mailbox) grow() {
	old := *b
	b.ring = make([]parcel, max(4, 2*len(old.ring)))
	for i := old.head; i != old.tail; i++ {
		*b.at(i) = *old.at(i)
	}
}

// expandProgression inserts the next repeat of the first progression before the first parcel.
func (b *mailbox) expandProgression() {
	p := &b.progressions[0]
	for i := len(p.first) - 1; i >= 0; i-- {
		b.putBack(p.first[i].add(p.step[i], p.done))
	}
	if p.done++; p.done < p.total {
		return
	}
	b.progressions, b.boundary = b.progressions[1:], noBoundary
	if len(b.progressions) > 0 {
		b.boundary = b.progressions[0].boundary
	}
}

// appendProgression appends n repeats of the last len(step) parcels in the mailbox, each with step
// added to the previous repeat.
func (b *mailbox) appendProgression(step []parcel, n int64) {
	p := progression{first: make([]parcel, len(step)), step: step, total: n, boundary: b.tail}
	for i := range step {
		p.first[i] = b.at(b.tail-uint(len(step))+uint(i)).add(step[i], 1)
	}
	if len(b.progressions) == 0 {
		b.boundary = p.boundary
	}
	b.progressions = append(b.progressions, p)
}

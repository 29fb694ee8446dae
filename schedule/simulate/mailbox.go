package simulate

import "github.com/weir-ml/weir/schedule"

// parcel is a message in flight, or the receipt of a message.
type parcel struct {
	key   int64 // stage and microbatch of the action that takes the parcel: see keyOf
	wire  int64 // the time at which it went on the wire
	there int64 // the time at which it came off the wire
	ready int64 // the time at which a waiting rank can continue
	// For the critical path: the action of the sender that determines the time of the parcel,
	// and the end of that action.
	by, since int64
}

// keyOf returns the stage and microbatch of an action as one number, with the stage in the lower
// bits.
func keyOf(a schedule.Action) int64 { return int64(a >> schedule.StageShift) }

// plus returns the parcel with n times the increment added.
func (p parcel) plus(step parcel, n int64) parcel {
	p.key += n * step.key
	p.wire += n * step.wire
	p.there += n * step.there
	p.ready += n * step.ready
	return p
}

// minus returns the difference of two parcels.
func (p parcel) minus(q parcel) parcel {
	return parcel{key: p.key - q.key, wire: p.wire - q.wire, there: p.there - q.there, ready: p.ready - q.ready}
}

// mailbox is a queue of parcels.
type mailbox struct {
	ring       []parcel // the length is a power of two
	head, tail uint     // the numbers of the first parcel and of the next parcel to be put

	// Piles represent the parcels of skipped repeats. Each pile precedes the parcel with a given
	// number; stop is that number for the first pile.
	piles []pile
	stop  uint
}

// pile represents parcels in arithmetic progressions: the parcels of first, then the same parcels
// with step added, and so on.
type pile struct {
	first, step []parcel
	done, total int64 // the number of repeats that were written out, and of all repeats
	before      uint
}

// noStop is a number that no parcel has.
const noStop = ^uint(0)

// newMailbox returns an empty mailbox. Its numbers begin in the middle of the range, so that
// parcels can be put back before the first one.
func newMailbox() mailbox { return mailbox{head: noStop / 2, tail: noStop / 2, stop: noStop} }

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
	if b.head == b.stop {
		b.unfold()
	}
	if b.head == b.tail {
		return nil
	}
	return b.at(b.head)
}

// take removes the first parcel.
func (b *mailbox) take() { b.head++ }

// at returns the parcel with a number.
func (b *mailbox) at(i uint) *parcel { return &b.ring[i&uint(len(b.ring)-1)] }

// grow doubles the ring.
func (b *mailbox) grow() {
	old := *b
	b.ring = make([]parcel, max(4, 2*len(old.ring)))
	for i := old.head; i != old.tail; i++ {
		*b.at(i) = *old.at(i)
	}
}

// unfold inserts the next parcels of the first pile before the first parcel.
func (b *mailbox) unfold() {
	p := &b.piles[0]
	for i := len(p.first) - 1; i >= 0; i-- {
		b.putBack(p.first[i].plus(p.step[i], p.done))
	}
	if p.done++; p.done < p.total {
		return
	}
	b.piles, b.stop = b.piles[1:], noStop
	if len(b.piles) > 0 {
		b.stop = b.piles[0].before
	}
}

// heap appends a pile of n repeats that continue the last len(step) parcels of the mailbox, with
// the increments step.
func (b *mailbox) heap(step []parcel, n int64) {
	p := pile{first: make([]parcel, len(step)), step: step, total: n, before: b.tail}
	for i := range step {
		p.first[i] = b.at(b.tail-uint(len(step))+uint(i)).plus(step[i], 1)
	}
	if len(b.piles) == 0 {
		b.stop = p.before
	}
	b.piles = append(b.piles, p)
}

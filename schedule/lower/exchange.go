package lower

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// Exchange sends the messages in the outboxes of all ranks for which links have room.
func (v *lowering) Exchange() {
	clear(v.dispatched)
	for rank := range v.clock.Ranks {
		if v.clock.Queues[v.outbox+rank].N[passes.Fresh] > 0 {
			v.dispatch(rank)
		}
	}
	clear(v.ended)
}

// dispatch sends the messages in a rank's outbox, in order, up to the first whose link has no room. If
// the capacity is limited and receives are not posted early, it first calls itself for the ranks that
// receive the messages, so that a receive from a late rank does not delay their own sends.
func (v *lowering) dispatch(rank int) {
	if v.dispatched[rank] {
		return
	}
	v.dispatched[rank] = true
	outbox := &v.clock.Queues[v.outbox+rank]
	for outbox.N[passes.Fresh] > 0 {
		out := passes.Edge(outbox.First())
		l := v.links.Of[out]
		if v.capacity != schedule.Unlimited && !v.postsReceives() {
			v.dispatch(v.links.To[l])
		}
		if !v.room(l) {
			break
		}
		send := outbox.Pop(passes.Fresh)
		v.Write(rank, send)
		v.clock.Queues[l].Push(send)
		v.sets.Add(setOf(out, made), int64(send.Microbatch()))
		if v.capacity == 0 {
			v.receiveEarly(l)
		}
	}
}

// postsReceives reports whether receives are posted as soon as their messages are sent. In that
// case, sends are dispatched in rank order.
func (v *lowering) postsReceives() bool { return v.capacity == 0 && v.plan.Runtime.Posts() }

// room reports whether a link has room for a message now. With a capacity of 0, it reports whether the
// receiver can take the message at once. If a link of another capacity is full, room lets the receiver
// take the oldest message if possible: immediately if the receiver is between two computations, or else
// before its current computation, if the message had arrived by then.
func (v *lowering) room(l int) bool {
	q := &v.clock.Queues[l]
	old, young := int(q.N[passes.Arrived]), int(q.N[passes.Fresh])
	between := !v.clock.Busy(v.links.To[l])
	switch {
	case v.capacity == schedule.Unlimited || old+young < v.capacity:
		return true
	case v.capacity == 0:
		return between || v.postsReceives() // both sides of the rendezvous are ready
	case between || old > 0:
		v.receiveEarly(l)
		return true
	}
	return false
}

// receiveEarly receives the oldest message on a link before a computation takes it. A posted receive
// may precede a computation that the receiver ends in this round, so that a hop takes no time. If two
// ranks send to each other, the higher rank posts its receive first.
func (v *lowering) receiveEarly(l int) {
	send := v.clock.Queues[l].Take()
	v.sets.Add(setOf(passes.Edge(send), early), int64(send.Microbatch()))
	switch from, to := v.links.From[l], v.links.To[l]; {
	case v.clock.Busy(to), v.ended[to] && from < to:
		v.scripts[to].Append(passes.ReceiptOf(send))
	default:
		v.scripts[to].write(passes.ReceiptOf(send))
	}
}

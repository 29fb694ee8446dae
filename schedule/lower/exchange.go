package lower

import (
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// Exchange sends the messages for which links have room.
func (v *lowering) Exchange() {
	clear(v.asked)
	for rank := range v.Ranks {
		if v.Queues[v.outbox+rank].N > 0 {
			v.dispatch(rank)
		}
	}
	clear(v.ended)
}

// dispatch empties a rank's outbox as far as links have room. If links may be full the ranks to
// which it sends come first. So they do not wait at a receive, should this rank be late, with a
// send after it.
func (v *lowering) dispatch(rank int) {
	if v.asked[rank] {
		return
	}
	v.asked[rank] = true
	outbox := &v.Queues[v.outbox+rank]
	for outbox.N > 0 {
		out := passes.Edge(outbox.List()[0].Head)
		l := v.Of[out]
		if v.capacity != schedule.Unlimited && !v.posts() {
			v.dispatch(v.To[l])
		}
		if !v.room(l) {
			break
		}
		send := v.Queues[v.outbox+rank].Pop()
		v.Write(rank, send)
		v.Queues[queueOf(l, fresh)].Push(send)
		v.Add(setOf(out, made), int64(send.Microbatch()))
		if v.capacity == 0 {
			v.receiveEarly(l)
		}
	}
}

// posts reports whether receives are posted as soon as their messages are sent. Sends are
// dispatched in the order of the ranks then.
func (v *lowering) posts() bool { return v.capacity == 0 && v.Plan.Runtime == schedule.PyTorch }

// room reports whether a link has room for a message now. It makes room in a full link if the
// receiver can take the oldest message: at once if it is between two computations, or else before
// its current one, if the message had arrived then.
func (v *lowering) room(l int) bool {
	old, young := v.Queues[queueOf(l, ripe)].N, v.Queues[queueOf(l, fresh)].N
	between := !v.Busy(v.To[l])
	switch {
	case v.capacity == schedule.Unlimited || old+young < v.capacity:
		return true
	case v.capacity == 0:
		return between || v.posts() // the two meet
	case between || old > 0:
		v.receiveEarly(l)
		return true
	}
	return false
}

// receiveEarly receives the oldest message of a link before a computation takes it. A receive that
// is posted may come before the computation that its rank ends in this round, so that a hop costs
// no time: of two ranks that send to each other then, the higher one posts first.
func (v *lowering) receiveEarly(l int) {
	send := v.receive(l)
	v.Add(setOf(passes.Edge(send), early), int64(send.Microbatch()))
	switch from, to := v.From[l], v.To[l]; {
	case v.Busy(to), v.ended[to] && from < to:
		v.scripts[to].Append(passes.ReceiptOf(send))
	default:
		v.scripts[to].write(passes.ReceiptOf(send))
	}
}

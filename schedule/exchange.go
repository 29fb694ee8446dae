package schedule

// exchange sends what the links take.
func (v *lowering) exchange() {
	clear(v.asked)
	for rank := range v.ranks {
		v.dispatch(rank)
	}
}

// dispatch empties a rank's outbox as far as the links take it. Those to whom it sends
// come first where links may be full: so they do not stand at a receive, should this rank
// be late, with something to send behind it.
func (v *lowering) dispatch(rank int) {
	if v.asked[rank] {
		return
	}
	v.asked[rank] = true
	outbox := &v.queues[v.outbox+rank]
	for outbox.n > 0 {
		out := edge(outbox.list()[0].head)
		l := v.of[out]
		if v.capacity != Unlimited {
			v.dispatch(v.to[l])
		}
		if !v.note(v.room(l)) {
			break
		}
		send := v.pop(v.outbox + rank)
		v.write(rank, send)
		v.push(queueOf(l, fresh), send)
		v.add(setOf(out, made), int64(send.Microbatch()))
		if v.capacity == 0 {
			v.receiveEarly(l)
		}
	}
}

// room reports whether a link takes a message now. It makes room in a full one if the
// receiver can take the oldest message: at once where it is between two computations,
// or else before the one that it is at, if the message was there then.
func (v *lowering) room(l int) bool {
	old, young := v.queues[queueOf(l, ripe)].n, v.queues[queueOf(l, fresh)].n
	between := !v.busy(v.to[l])
	switch {
	case v.capacity == Unlimited || old+young < v.capacity:
		return true
	case v.capacity == 0:
		return between // the two meet
	case between || old > 0:
		v.receiveEarly(l)
		return true
	}
	return false
}

// receiveEarly receives the oldest message of a link before anything takes it.
func (v *lowering) receiveEarly(l int) {
	send := v.receive(l)
	v.add(setOf(edge(send), early), int64(send.Microbatch()))
	switch to := v.to[l]; {
	case v.trial:
	case v.busy(to):
		v.scripts[to].before(receiptOf(send))
	default:
		v.scripts[to].write(receiptOf(send))
	}
}

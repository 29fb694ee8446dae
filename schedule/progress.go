package schedule

// progress proves that no rank waits for ever for another one, where a link holds so
// many messages. It lets all ranks march, with nothing but what they have to do with
// each other.
func (c *checker) progress(capacity int) {
	if len(c.plan.Programs) == 1 {
		return
	}
	v := c.march(capacity)
	c.looked(&v.walk)
	if v.exhausted {
		c.untold()
		return
	}
	still := standstill{&c.outline, v.links, v.ranks}
	for _, f := range still.faults() {
		c.add(f)
	}
}

// march lets all ranks go as far as they can.
func (c *checker) march(capacity int) *progress {
	sets := c.stages * kindsPerStage
	v := &progress{c: c, capacity: int64(capacity), links: newLinks(&c.outline), totals: sets}
	v.march = newMarch(&c.outline, 2*sets, len(v.links.from))
	copy(v.sets[sets:], c.totals)
	v.run(v)
	return v
}

// progress is the marcher that waits only for other ranks. Its sets are what is done
// that another rank may wait for; its counts are the messages that each link holds.
type progress struct {
	march
	c        *checker
	capacity int64
	links    links
	totals   int // the index of the first set that says what the plan has at all
}

// step runs an action if nothing of another rank is in its way, nor in that of the
// other one of a pair of which it is the first.
func (v *progress) step(rank int, a Action, mb int64) bool {
	if v.transfers && a.Kind().Compute() {
		return true // its rank sends and receives
	}
	if !v.clear(a, mb) {
		return false
	}
	if a.Joined() {
		if with := v.ranks[rank].partner(); with.Kind().Compute() && !v.clear(with, int64(with.Microbatch())) {
			return false
		}
	}
	v.act(a, mb)
	return true
}

// clear reports whether nothing of another rank is in the way of one action.
func (v *progress) clear(a Action, mb int64) bool {
	stage, kind := a.Stage(), a.Kind()
	if kind > WaitB || !v.c.counted && (!v.c.allows(stage, kind) || v.has(v.c.set(stage, kind), mb)) {
		return true // what the census has found is not found again
	}
	switch kind {
	case F:
		return v.transfers || !v.crosses(stage-1) || v.done(stage-1, F, None, mb)
	case B, I:
		return v.transfers || !v.crosses(stage) || v.done(stage+1, B, I, mb)
	case SendF, SendB:
		e := edge(a)
		switch {
		case v.capacity < 0:
			return true
		case v.capacity == 0:
			return v.done(receiver(e), kind+RecvF-SendF, None, mb)
		}
		return v.less(v.counts[v.links.of[e]], v.capacity)
	case RecvF, RecvB:
		e := edge(a)
		if v.capacity == 0 {
			return v.stands(v.links.from[v.links.of[e]], sent(e, mb)) || v.missing(e/2, kind-RecvF+SendF, None, mb)
		}
		return v.done(e/2, kind-RecvF+SendF, None, mb)
	case WaitF: // of a wait before its send the order of its rank has told
		return v.done(stage+1, RecvF, None, mb) || !v.has(v.c.set(stage, SendF), mb)
	case WaitB:
		return v.done(stage-1, RecvB, None, mb) || !v.has(v.c.set(stage, SendB), mb)
	}
	return true
}

// done reports whether an action of one of two kinds is done, or is not in the plan
// at all, which the census has said.
func (v *progress) done(stage int, kind, or Kind, mb int64) bool {
	return v.has(v.c.set(stage, kind), mb) || or != None && v.has(v.c.set(stage, or), mb) || v.missing(stage, kind, or, mb)
}

func (v *progress) missing(stage int, kind, or Kind, mb int64) bool {
	return !v.c.counted && !v.has(v.totals+v.c.set(stage, kind), mb) && (or == None || !v.has(v.totals+v.c.set(stage, or), mb))
}

// act does an action, if another rank may ask for it.
func (v *progress) act(a Action, mb int64) {
	stage, kind := a.Stage(), a.Kind()
	if !v.asked(stage, kind) || !v.add(v.c.set(stage, kind), mb) || kind.Compute() || v.capacity <= 0 {
		return
	}
	e := edge(a)
	link := &v.counts[v.links.of[e]]
	switch {
	case kind == SendF || kind == SendB:
		if !v.missing(receiver(e), kind+RecvF-SendF, None, mb) {
			*link++
		}
	case !v.missing(e/2, kind-RecvF+SendF, None, mb):
		*link--
	}
}

// asked reports whether another rank may ask if an action is done.
func (v *progress) asked(stage int, kind Kind) bool {
	switch kind {
	case F:
		return !v.transfers && v.crosses(stage)
	case B, I:
		return !v.transfers && v.crosses(stage-1)
	case SendF, RecvF, SendB, RecvB:
		return v.c.allows(stage, kind)
	}
	return false
}

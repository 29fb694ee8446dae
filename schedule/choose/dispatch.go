package choose

// dispatcher makes orders from policies: task by task, of the rank that decides first.
type dispatcher struct {
	progress
	limit int64   // bytes on a rank
	way   []int64 // by block: the time from the end of a forward to its gradient, if nothing waits
	// held is by block the bytes that are left free when a forward begins there: those for
	// one microbatch to come through the rank's later blocks. So something can always go on.
	held []int64

	most  []int   // by block: microbatches between forward and backward
	live  []int64 // by rank: bytes
	wake  []int64 // by rank: when it decides next
	until []int64 // by rank: when its task ends
	order order
}

func newDispatcher(s *shop) *dispatcher {
	blocks := len(s.blocks)
	d := &dispatcher{
		progress: newProgress(s), way: make([]int64, blocks), held: make([]int64, blocks), most: make([]int, blocks),
		live: make([]int64, s.ranks), wake: make([]int64, s.ranks), until: make([]int64, s.ranks),
	}
	for b := blocks - 2; b >= 0; b-- {
		f, i := taskOf(b+1, forward), taskOf(b+1, backward)
		d.way[b] = s.lag[f-parts] + s.time[f] + d.way[b+1] + s.time[i] + s.lag[i]
	}
	for rank, on := range s.on {
		later := s.spare[rank]
		for k := len(on) - 1; k >= 0; k-- {
			d.held[on[k]] = later
			later += max(0, s.bytes[taskOf(on[k], forward)].net)
		}
	}
	return d
}

// run returns the order of a policy when no rank has more than this many bytes. It
// reports false if they are too few for it.
func (d *dispatcher) run(p policy, limit int64) (order, bool) {
	d.prepare(&p)
	d.limit = limit
	for left := d.length(); left > 0; {
		rank := d.first()
		now := d.wake[rank]
		if now == never {
			return nil, false
		}
		chances := d.look(rank, now, p.high)
		if t, next := p.decide(&chances, d.time, now); t >= 0 {
			d.do(rank, t, now)
			left--
		} else {
			d.wake[rank] = next
		}
	}
	return d.order, true
}

// prepare goes back to the beginning of the step, for a policy.
func (d *dispatcher) prepare(p *policy) {
	d.reset()
	clear(d.wake)
	clear(d.until)
	copy(d.live, d.base)
	d.order = make(order, d.ranks)
	for rank, on := range d.on {
		d.order[rank] = make([]task, 0, d.kinds()*len(on)*d.microbatches)
		var fast int64
		for _, b := range on {
			fast += d.time[taskOf(b, forward)]
		}
		enter := float64(fast) + p.pace*float64(d.busy(rank)-fast)
		for _, b := range on {
			onItsWay := float64(d.way[b]) / max(enter, 1)
			d.most[b] = max(1, int(1+min(onItsWay+p.depth, float64(d.microbatches))))
		}
	}
}

// first returns the rank that decides next.
func (d *dispatcher) first() (rank int) {
	for r, at := range d.wake {
		if at < d.wake[rank] {
			rank = r
		}
	}
	return rank
}

// chances are the tasks that a free rank can begin, -1 if there is none of a kind, and when the next
// ones can begin.
type chances struct {
	forward, backward, weight task
	ahead                     int // microbatches between forward and backward in the block of the forward
	nextForward, nextBackward int64
	starved                   bool // something else could begin, if there were memory
}

// look returns the chances of a rank.
func (d *dispatcher) look(rank int, now int64, high bool) chances {
	c := chances{forward: -1, backward: -1, weight: -1, nextForward: never, nextBackward: never}
	room := d.limit - d.live[rank]
	for _, b := range d.on[rank] {
		f, i, w := taskOf(b, forward), taskOf(b, backward), taskOf(b, weight)
		between := d.begun[f] - d.begun[i]
		if at := d.input(i); at != never {
			switch {
			case d.bytes[i].up > room:
				c.starved = c.starved || at <= now
			case at > now:
				c.nextBackward = min(c.nextBackward, at)
			case c.backward < 0 || high:
				c.backward = i
			}
		}
		if at := d.input(f); at != never && between < d.most[b] {
			switch {
			case max(d.bytes[f].up, d.bytes[f].net+d.held[b]) > room:
				c.starved = c.starved || at <= now
			case at > now:
				c.nextForward = min(c.nextForward, at)
			default:
				c.forward, c.ahead = f, between
			}
		}
		if d.split && c.weight < 0 && d.begun[w] < d.begun[i] {
			c.weight = w
		}
	}
	return c
}

// decide returns the task that begins now, or -1 and when to decide again.
func (p *policy) decide(c *chances, time []int64, now int64) (task, int64) {
	// fits reports whether this part of a task is done by then.
	fits := func(part float64, t task, then int64) bool {
		return then == never || float64(then-now) >= part*float64(time[t])
	}
	next := min(c.nextForward, c.nextBackward)
	if c.forward >= 0 {
		next = c.nextBackward
		if c.ahead < p.lead || c.backward < 0 && fits(p.hold, c.forward, next) {
			return c.forward, 0
		}
	}
	switch {
	case c.backward >= 0:
		return c.backward, 0
	case c.weight >= 0 && (c.starved || fits(p.fill, c.weight, next)):
		return c.weight, 0
	}
	return -1, next
}

// do lets a rank begin a task.
func (d *dispatcher) do(rank int, t task, now int64) {
	d.order[rank] = append(d.order[rank], t)
	d.live[rank] += d.bytes[t].net
	end := now + d.time[t]
	d.wake[rank], d.until[rank] = end, end
	if to := d.begin(t, end); to >= 0 {
		if peer := d.blocks[to.block()].rank; peer != rank && d.until[peer] <= now {
			d.wake[peer] = now // it is free and may decide anew
		}
	}
}

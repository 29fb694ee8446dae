package choose

// dispatcher builds orders from policies by list scheduling. It simulates the ranks in the order of
// their decisions.
type dispatcher struct {
	progress
	limit     int64   // limit of the bytes on a rank
	roundTrip []int64 // by block: the time from the end of a forward to the arrival of its gradient if nothing waits
	// reserve is, by block, the number of bytes that a forward must leave free: those that one microbatch
	// needs to run through the rank's later blocks. This prevents a deadlock from lack of memory.
	reserve []int64

	maxInFlight []int   // by block: maximum number of microbatches between forward and backward
	live        []int64 // by rank: live bytes
	decision    []int64 // by rank: the time of its next decision
	busyUntil   []int64 // by rank: the end of its task
	order       order
}

func newDispatcher(s *jobShop) *dispatcher {
	blocks := len(s.blocks)
	d := &dispatcher{
		progress: newProgress(s), roundTrip: make([]int64, blocks), reserve: make([]int64, blocks), maxInFlight: make([]int, blocks),
		live: make([]int64, s.ranks), decision: make([]int64, s.ranks), busyUntil: make([]int64, s.ranks),
	}
	for b := blocks - 2; b >= 0; b-- {
		f, i := taskOf(b+1, forward), taskOf(b+1, backward)
		d.roundTrip[b] = s.lag[f-parts] + s.duration[f] + d.roundTrip[b+1] + s.duration[i] + s.lag[i]
	}
	for rank, blocks := range s.blocksOn {
		reserve := s.workspace[rank]
		for k := len(blocks) - 1; k >= 0; k-- {
			d.reserve[blocks[k]] = reserve
			reserve += max(0, s.bytes[taskOf(blocks[k], forward)].net)
		}
	}
	return d
}

// run returns the order that a policy makes if no rank may exceed the limit of bytes. It returns false if
// the limit is too low for the policy.
func (d *dispatcher) run(p policy, limit int64) (order, bool) {
	d.prepare(&p)
	d.limit = limit
	for left := d.tasks(); left > 0; {
		rank := 0
		for r, at := range d.decision {
			if at < d.decision[rank] {
				rank = r
			}
		}
		now := d.decision[rank]
		if now == infinity {
			return nil, false
		}
		c := d.choices(rank, now, p.highestFirst)
		if t, next := p.decide(&c, d.duration, now); t >= 0 {
			d.dispatch(rank, t, now)
			left--
		} else {
			d.decision[rank] = next
		}
	}
	return d.order, true
}

// prepare resets the dispatcher to the beginning of the step and computes a policy's bounds.
func (d *dispatcher) prepare(p *policy) {
	d.reset()
	clear(d.decision)
	clear(d.busyUntil)
	copy(d.live, d.resident)
	d.order = make(order, d.ranks)
	for rank, blocks := range d.blocksOn {
		d.order[rank] = make([]task, 0, d.parts()*len(blocks)*d.microbatches)
		var forwards int64
		for _, b := range blocks {
			forwards += d.duration[taskOf(b, forward)]
		}
		interval := float64(forwards) + p.pace*float64(d.work(rank)-forwards) // time between entering microbatches
		for _, b := range blocks {
			inFlight := float64(d.roundTrip[b]) / max(interval, 1)
			d.maxInFlight[b] = max(1, int(1+min(inFlight+p.depth, float64(d.microbatches))))
		}
	}
}

// choices holds the tasks that an idle rank can start, with -1 for each kind that has none, and the times at which
// further tasks will be able to start.
type choices struct {
	forward, backward, weight task
	inFlight                  int // microbatches in flight in the block of the forward
	nextForward, nextBackward int64
	blocked                   bool // some task has its input and lacks only memory
}

// choices returns the choices of a rank.
func (d *dispatcher) choices(rank int, now int64, highestFirst bool) choices {
	c := choices{forward: -1, backward: -1, weight: -1, nextForward: infinity, nextBackward: infinity}
	free := d.limit - d.live[rank]
	for _, b := range d.blocksOn[rank] {
		f, i, w := taskOf(b, forward), taskOf(b, backward), taskOf(b, weight)
		inFlight := d.started[f] - d.started[i]
		if arrival := d.arrival(i); arrival != infinity {
			switch {
			case d.bytes[i].peak > free:
				c.blocked = c.blocked || arrival <= now
			case arrival > now:
				c.nextBackward = min(c.nextBackward, arrival)
			case c.backward < 0 || highestFirst:
				c.backward = i
			}
		}
		if arrival := d.arrival(f); arrival != infinity && inFlight < d.maxInFlight[b] {
			switch {
			case max(d.bytes[f].peak, d.bytes[f].net+d.reserve[b]) > free:
				c.blocked = c.blocked || arrival <= now
			case arrival > now:
				c.nextForward = min(c.nextForward, arrival)
			default:
				c.forward, c.inFlight = f, inFlight
			}
		}
		if d.split && c.weight < 0 && d.started[w] < d.started[i] {
			c.weight = w
		}
	}
	return c
}

// dispatch starts a task on a rank.
func (d *dispatcher) dispatch(rank int, t task, now int64) {
	d.order[rank] = append(d.order[rank], t)
	d.live[rank] += d.bytes[t].net
	end := now + d.duration[t]
	d.decision[rank], d.busyUntil[rank] = end, end
	if successor := d.start(t, end); successor >= 0 {
		if peer := d.blocks[successor.block()].rank; peer != rank && d.busyUntil[peer] <= now {
			d.decision[peer] = now // it is idle and may decide differently
		}
	}
}

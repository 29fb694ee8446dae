package choose

import "slices"

// rounds builds orders for a wave with two blocks on each rank, by the heuristic of the authors of zero
// bubble for this placement. After a warm-up, the ranks advance in rounds. In each round a rank runs a
// backward and a forward, and before them as many W as end before their inputs arrive. One more W delays
// them if the rank would otherwise wait longer, in total, than all other ranks.
type rounds struct {
	progress
	limit int64
	// A W can always delay a backward of a lower block. It can delay a forward only if delayForward is set, and a
	// backward of an upper block only if delayUpper is set.
	delayForward, delayUpper bool
	allowed                  []int64 // by rank: how long the rank waited in the preceding order

	now, live, waited []int64  // by rank; the wait before the first task does not count
	pending           [][]task // by rank: W whose I has run
	order             order
	failed            bool // a task has no input, or there is no memory for it
}

// roundsOrders returns the orders that rounds builds within a limit of bytes, or nil if the blocks are not such a wave or
// the backward is not split. It repeats each variant as long as the longest wait decreases: a rank that waited less than
// the others in one order may wait longer in the next.
func roundsOrders(s *jobShop, limit int64) (orders []order) {
	for rank, blocks := range s.blocksOn {
		if !s.split || !slices.Equal(blocks, []int{rank, 2*s.ranks - 1 - rank}) {
			return nil
		}
	}
	for variant := range 4 {
		r := &rounds{progress: newProgress(s), limit: limit, delayForward: variant&1 == 0, delayUpper: variant&2 == 0, allowed: make([]int64, s.ranks)}
		for longest := int64(infinity); r.run() && slices.Max(r.waited) < longest; {
			if !slices.ContainsFunc(orders, func(o order) bool { return slices.EqualFunc(o, r.order, slices.Equal) }) {
				orders = append(orders, r.order)
			}
			longest, r.allowed = slices.Max(r.waited), r.waited
		}
	}
	return orders
}

// run builds an order. It returns false if a task has no input, or there is no memory for it.
func (r *rounds) run() bool {
	r.reset()
	r.now, r.live, r.waited = make([]int64, r.ranks), slices.Clone(r.resident), make([]int64, r.ranks)
	r.pending, r.order, r.failed = make([][]task, r.ranks), make(order, r.ranks), false
	r.warmUp()
	for range 2 * r.microbatches {
		r.backwards()
		r.forwards()
		if r.failed {
			return false
		}
	}
	for rank := range r.ranks {
		for len(r.pending[rank]) > 0 {
			r.runWeight(rank)
		}
	}
	return !r.failed
}

// lower and upper return a task of a rank's first and second block.
func (r *rounds) lower(rank, part int) task { return taskOf(rank, part) }
func (r *rounds) upper(rank, part int) task { return taskOf(2*r.ranks-1-rank, part) }

func (r *rounds) isDone(t task) bool { return r.started[t] >= r.microbatches }

// warmUp runs the first forward of every block, preceded by forwards of lower blocks that end before
// its input arrives. Then it runs forwards until every rank has run one more forward in its
// upper block than the rank before, and as many in total.
func (r *rounds) warmUp() {
	for rank := range r.ranks {
		r.runTask(r.lower(rank, forward))
	}
	for rank := r.ranks - 1; rank >= 0 && !r.failed; rank-- {
		f, g := r.lower(rank, forward), r.upper(rank, forward)
		needed := int64(2*rank+2) * max(r.bytes[f].net, r.bytes[g].net)
		for rank < r.ranks-1 && !r.failed && !r.isDone(f) && r.live[rank]+needed <= r.limit && r.now[rank]+r.duration[f] <= r.arrival(g) {
			for k := range rank + 1 {
				r.runTask(r.lower(k, forward))
			}
		}
		r.runTask(g)
	}
	next, other := r.lower, r.upper
	for rank := 1; rank < r.ranks; rank++ {
		forwards := func(rank int) int { return r.started[r.lower(rank, forward)] + r.started[r.upper(rank, forward)] }
		g, before := r.upper(rank, forward), r.upper(rank-1, forward)
		for !r.failed && (forwards(rank) < forwards(rank-1) || r.started[g] <= r.started[before] && !r.isDone(before)) {
			for k := r.ranks - 1; k >= rank; k-- {
				if t := next(k, forward); !r.isDone(t) {
					r.runTask(t)
				}
			}
			next, other = other, next
		}
	}
}

// backwards runs a backward on each rank, that of the lower block if its gradient has arrived. Gradients first move
// from the last rank to the first in the lower blocks, and then back in the upper blocks.
func (r *rounds) backwards() {
	isLower := make([]bool, r.ranks)
	for rank := range isLower {
		lower, upper := r.lower(rank, backward), r.upper(rank, backward)
		isLower[rank] = r.started[lower] < r.started[upper] && (r.arrival(lower) != infinity || r.isDone(upper))
	}
	for rank := r.ranks - 1; rank >= 0; rank-- {
		if isLower[rank] {
			r.runAfterWeights(r.lower(rank, backward), true)
		}
	}
	for rank := range r.ranks {
		if !isLower[rank] {
			r.runAfterWeights(r.upper(rank, backward), r.delayUpper)
		}
	}
}

// forwards runs a forward on each rank that has one left: that of the upper block if its input has arrived.
func (r *rounds) forwards() {
	for rank := range r.ranks {
		lower, upper := r.lower(rank, forward), r.upper(rank, forward)
		switch {
		case r.isDone(upper):
		case r.started[upper] < r.started[lower] && r.arrival(upper) != infinity:
			r.runAfterWeights(upper, r.delayForward)
		case r.started[upper] >= r.started[lower] || r.arrival(lower) != infinity:
			r.runAfterWeights(lower, r.delayForward)
		}
	}
}

// runAfterWeights runs a task after the W for which there is time, and those whose memory it needs.
func (r *rounds) runAfterWeights(t task, delay bool) {
	rank, ready := r.blocks[t.block()].rank, r.arrival(t)
	pending := func() bool { return len(r.pending[rank]) > 0 && !r.failed }
	for pending() && (r.live[rank]+r.bytes[t].peak > r.limit || ready >= r.now[rank]+r.duration[r.pending[rank][0]]) {
		r.runWeight(rank)
	}
	longest := max(slices.Max(r.waited), slices.Max(r.allowed)-r.allowed[rank])
	if delay && pending() && r.waited[rank]+ready-r.now[rank] > longest {
		r.runWeight(rank)
	}
	r.runTask(t)
}

// runWeight runs the first pending W of a rank.
func (r *rounds) runWeight(rank int) {
	t := r.pending[rank][0]
	r.pending[rank] = r.pending[rank][1:]
	r.runTask(t)
}

// runTask runs a task on its rank.
func (r *rounds) runTask(t task) {
	rank, ready := r.blocks[t.block()].rank, int64(0)
	if t.part() != weight {
		ready = r.arrival(t)
	}
	if r.failed = r.failed || r.isDone(t) || ready == infinity || r.live[rank]+r.bytes[t].peak > r.limit; r.failed {
		return
	}
	wait := max(0, ready-r.now[rank])
	if len(r.order[rank]) > 0 {
		r.waited[rank] += wait
	}
	r.now[rank] += wait + r.duration[t]
	r.live[rank] += r.bytes[t].net
	r.order[rank] = append(r.order[rank], t)
	if r.start(t, r.now[rank]); t.part() == backward {
		r.pending[rank] = append(r.pending[rank], t+1)
	}
}

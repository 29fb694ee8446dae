package choose

import (
	"cmp"
	"slices"
)

// justify makes an order better by moving its tasks: first each as late as it can be,
// the last ones first, and then each as early as it can be, the first ones first. A
// task goes into the first gap of its rank that is long enough for it and in which
// the bytes that it holds, from there to where it was, keep within the limit. So gaps
// at the beginning of a step are filled, and at its end, and it takes no longer than
// before. (Project scheduling knows this as forward-backward improvement.)
//
// The clock has just run the order, which keeps within the limit, and has run the one
// that comes back.
func (c *clock) justify(o order, limit int64) (order, timing) {
	jobs := make([]job, 0, c.kinds()*len(c.blocks)*c.microbatches)
	clear(c.begun)
	for rank, tasks := range o {
		for i, t := range tasks {
			jobs = append(jobs, job{t, c.begun[t], -(c.start[rank][i] + c.time[t])})
			c.begun[t]++
		}
	}
	late := newBoard(c.shop, true)
	late.place(jobs, limit)
	for i, j := range jobs {
		jobs[i].key = -late.ends[j.task][j.mb]
	}
	early := newBoard(c.shop, false)
	early.place(jobs, limit)
	o = early.order()
	t, _ := c.run(o)
	return o, t
}

// job is a task of a microbatch. It is placed after those with a smaller key.
type job struct {
	task task
	mb   int
	key  int64
}

// board has the tasks that are placed. On one that is reversed time runs backward from
// the end of the step.
type board struct {
	*shop
	reversed bool
	needs    [][]need  // by task: the tasks that must have ended before it
	bytes    []change  // by task
	slots    [][]slot  // by rank
	ends     [][]int64 // by task and microbatch
}

type need struct {
	task task
	lag  int64
}

// slot is a task that is placed: the time in which it runs, and the bytes that are live then.
type slot struct {
	task     task
	from, to int64
	live     int64
}

func newBoard(s *shop, reversed bool) *board {
	b := &board{shop: s, reversed: reversed, needs: make([][]need, len(s.time)), bytes: s.bytes, slots: make([][]slot, s.ranks), ends: make([][]int64, len(s.time))}
	precede := func(first, second task, lag int64) {
		if reversed {
			first, second = second, first
		}
		b.needs[second] = append(b.needs[second], need{first, lag})
	}
	for i := range s.time {
		t := task(i)
		b.ends[t] = make([]int64, s.microbatches)
		if to := s.after[t]; to >= 0 {
			precede(t, to, s.lag[t])
		}
		if t.part() == weight && s.split {
			precede(t-1, t, 0)
		}
	}
	if reversed {
		b.bytes = make([]change, len(s.bytes))
		for t, c := range s.bytes {
			b.bytes[t] = change{c.up - c.net, -c.net}
		}
	}
	return b
}

// place sorts the jobs and places one after the other.
func (b *board) place(jobs []job, limit int64) {
	slices.SortFunc(jobs, func(x, y job) int {
		if x.key != y.key {
			return cmp.Compare(x.key, y.key)
		}
		if b.reversed {
			x, y = y, x
		}
		return cmp.Or(cmp.Compare(x.mb, y.mb), cmp.Compare(b.step(x.task), b.step(y.task)))
	})
	for _, j := range jobs {
		ready := b.ready(j)
		rank := b.blocks[j.task.block()].rank
		slots := b.slots[rank]
		at := len(slots)
		for at > 0 && slots[at-1].to > ready {
			at--
		}
		for at < len(slots) && !b.fits(rank, at, j.task, ready, limit) {
			at++
		}
		b.insert(rank, at, j, ready)
	}
}

// step returns the place of a task on the way of a microbatch.
func (s *shop) step(t task) int {
	switch t.part() {
	case forward:
		return 2 * t.block()
	case backward:
		return 2 * (2*len(s.blocks) - t.block())
	}
	return 2*(2*len(s.blocks)-t.block()) + 1
}

// ready returns when the needs of a job have ended. Microbatches stay in their order.
func (b *board) ready(j job) (at int64) {
	for _, n := range b.needs[j.task] {
		at = max(at, b.ends[n.task][j.mb]+n.lag)
	}
	before := j.mb - 1
	if b.reversed {
		before = j.mb + 1
	}
	if before >= 0 && before < b.microbatches {
		at = max(at, b.ends[j.task][before])
	}
	return at
}

// fits reports whether a task can go before a slot.
func (b *board) fits(rank, at int, t task, ready, limit int64) bool {
	slots := b.slots[rank]
	if at > 0 {
		ready = max(ready, slots[at-1].to)
	}
	if ready+b.time[t] > slots[at].from || b.live(rank, at)+b.bytes[t].up > limit {
		return false
	}
	if b.bytes[t].net > 0 {
		for i := at; i < len(slots); i++ {
			if slots[i].live+b.bytes[t].net > limit {
				return false
			}
		}
	}
	return true
}

// live returns the bytes that are live on a rank before a slot.
func (b *board) live(rank, at int) int64 {
	if at == 0 {
		return b.base[rank]
	}
	before := b.slots[rank][at-1]
	return before.live - b.bytes[before.task].up + b.bytes[before.task].net
}

// insert puts a job before a slot.
func (b *board) insert(rank, at int, j job, ready int64) {
	if at > 0 {
		ready = max(ready, b.slots[rank][at-1].to)
	}
	end := ready + b.time[j.task]
	b.ends[j.task][j.mb] = end
	own := b.bytes[j.task]
	b.slots[rank] = slices.Insert(b.slots[rank], at, slot{j.task, ready, end, b.live(rank, at) + own.up})
	for i := at + 1; i < len(b.slots[rank]); i++ {
		b.slots[rank][i].live += own.net
	}
}

// order returns the order that is on the board.
func (b *board) order() order {
	o := make(order, b.ranks)
	for rank, slots := range b.slots {
		o[rank] = make([]task, len(slots))
		for i, s := range slots {
			o[rank][i] = s.task
		}
	}
	return o
}

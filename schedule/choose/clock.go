package choose

// clock finds out when the tasks of an order run: each as early as it can. It keeps its
// memory from one order to the next.
type clock struct {
	*shop
	start [][]int64 // by rank: when its tasks begin

	there   [][]int64 // by task: when the input of each microbatch is there
	arrived []int     // by task: how many are
	begun   []int     // by task
	waiting []bool    // by task: its rank waits for the next input
	next    []int     // by rank: its next task
	now     []int64   // by rank
	ready   []int     // ranks that can go on
}

// timing is how long an order takes.
type timing struct{ makespan, span int64 }

func newClock(s *shop) *clock {
	tasks := parts * len(s.blocks)
	c := &clock{
		shop: s, start: make([][]int64, s.ranks), there: make([][]int64, tasks), arrived: make([]int, tasks),
		begun: make([]int, tasks), waiting: make([]bool, tasks), next: make([]int, s.ranks), now: make([]int64, s.ranks),
	}
	for rank := range c.start {
		c.start[rank] = make([]int64, s.kinds()*len(s.on[rank])*s.microbatches)
	}
	for t := range c.there {
		if task(t).part() != weight {
			c.there[t] = make([]int64, s.microbatches)
		}
	}
	return c
}

// run reports false where the order cannot be run to its end.
func (c *clock) run(o order) (timing, bool) {
	clear(c.arrived)
	clear(c.begun)
	clear(c.waiting)
	clear(c.next)
	clear(c.now)
	clear(c.there[0])
	c.arrived[0] = c.microbatches
	c.ready = c.ready[:0]
	for rank := range o {
		c.ready = append(c.ready, rank)
	}
	for len(c.ready) > 0 {
		rank := c.ready[len(c.ready)-1]
		c.ready = c.ready[:len(c.ready)-1]
		c.goOn(rank, o[rank])
	}
	var t timing
	for rank, tasks := range o {
		if c.next[rank] < len(tasks) {
			return timing{}, false
		}
		if len(tasks) > 0 {
			t.makespan = max(t.makespan, c.now[rank])
			t.span = max(t.span, c.now[rank]-c.start[rank][0])
		}
	}
	return t, true
}

// goOn runs the tasks of a rank until one has to wait.
func (c *clock) goOn(rank int, tasks []task) {
	now, at, start := c.now[rank], c.next[rank], c.start[rank]
	for ; at < len(tasks); at++ {
		t := tasks[at]
		mb := c.begun[t]
		if t.part() != weight {
			if mb >= c.arrived[t] {
				c.waiting[t] = true
				break
			}
			now = max(now, c.there[t][mb])
		} else if mb >= c.begun[t-1] {
			break // never
		}
		start[at] = now
		now += c.time[t]
		c.begun[t]++
		if to := c.after(t); to >= 0 {
			c.there[to][mb] = now + c.lag[t]
			c.arrived[to]++
			if c.waiting[to] {
				c.waiting[to] = false
				c.ready = append(c.ready, c.blocks[to.block()].rank)
			}
		}
	}
	c.now[rank], c.next[rank] = now, at
}

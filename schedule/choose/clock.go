package choose

import "math"

// progress is how far a shop has come. It keeps its memory from one order to the next.
type progress struct {
	*shop
	there [][]int64 // by task: when the inputs of its microbatches are there, those that are known
	begun []int     // by task
}

const never = math.MaxInt64

func newProgress(s *shop) progress {
	p := progress{shop: s, there: make([][]int64, len(s.time)), begun: make([]int, len(s.time))}
	for t := range p.there {
		p.there[t] = make([]int64, 0, s.microbatches)
	}
	return p
}

// reset goes back to the beginning of the step.
func (p *progress) reset() {
	clear(p.begun)
	for t := range p.there {
		p.there[t] = p.there[t][:0]
	}
	p.there[0] = p.there[0][:p.microbatches] // all 0
}

// input returns when the next input of a task is there, never if that is not known.
func (p *progress) input(t task) int64 {
	if p.begun[t] == len(p.there[t]) {
		return never
	}
	return p.there[t][p.begun[t]]
}

// begin begins a task that ends then. It returns the task that takes its result, -1 if there is
// none.
func (p *progress) begin(t task, end int64) (to task) {
	p.begun[t]++
	if to = p.after[t]; to >= 0 {
		p.there[to] = append(p.there[to], end+p.lag[t])
	}
	return to
}

// clock finds out when the tasks of an order run: each as early as it can.
type clock struct {
	progress
	start [][]int64 // by rank: when its tasks begin

	waiting []bool  // by task: its rank waits for the next input
	next    []int   // by rank: its next task
	now     []int64 // by rank
	ready   []int   // ranks that can go on
}

// timing is how long an order takes.
type timing struct{ makespan, span int64 }

func newClock(s *shop) *clock {
	c := &clock{
		progress: newProgress(s), start: make([][]int64, s.ranks), waiting: make([]bool, len(s.time)),
		next: make([]int, s.ranks), now: make([]int64, s.ranks),
	}
	for rank := range c.start {
		c.start[rank] = make([]int64, s.kinds()*len(s.on[rank])*s.microbatches)
	}
	return c
}

// run reports false if the order cannot be run to its end.
func (c *clock) run(o order) (timing, bool) {
	c.reset()
	clear(c.waiting)
	clear(c.next)
	clear(c.now)
	c.ready = c.ready[:0]
	for rank := range o {
		c.ready = append(c.ready, rank)
	}
	for len(c.ready) > 0 {
		rank := c.ready[len(c.ready)-1]
		c.ready = c.ready[:len(c.ready)-1]
		c.advance(rank, o[rank])
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

// advance runs the tasks of a rank until one has to wait.
func (c *clock) advance(rank int, tasks []task) {
	now, at, start := c.now[rank], c.next[rank], c.start[rank]
	for ; at < len(tasks); at++ {
		t := tasks[at]
		if t.part() == weight {
			if c.begun[t] >= c.begun[t-1] {
				break // never
			}
		} else if input := c.input(t); input != never {
			now = max(now, input)
		} else {
			c.waiting[t] = true
			break
		}
		start[at] = now
		now += c.time[t]
		if to := c.begin(t, now); to >= 0 && c.waiting[to] {
			c.waiting[to] = false
			c.ready = append(c.ready, c.blocks[to.block()].rank)
		}
	}
	c.now[rank], c.next[rank] = now, at
}

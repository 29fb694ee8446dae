package choose

import "math"

// progress is the state of a partial execution of a job shop. Its memory is reused between orders.
type progress struct {
	*jobShop
	arrivals [][]int64 // by task: when the inputs of its microbatches arrive, as far as is known
	started  []int     // by task
}

const infinity = math.MaxInt64

func newProgress(s *jobShop) progress {
	p := progress{jobShop: s, arrivals: make([][]int64, len(s.duration)), started: make([]int, len(s.duration))}
	for t := range p.arrivals {
		p.arrivals[t] = make([]int64, 0, s.microbatches)
	}
	return p
}

// reset returns to the beginning of the step.
func (p *progress) reset() {
	clear(p.started)
	for t := range p.arrivals {
		p.arrivals[t] = p.arrivals[t][:0]
	}
	p.arrivals[0] = p.arrivals[0][:p.microbatches] // all 0
}

// arrival returns the time at which the next input of a task arrives, or infinity if it is not known yet.
func (p *progress) arrival(t task) int64 {
	if p.started[t] == len(p.arrivals[t]) {
		return infinity
	}
	return p.arrivals[t][p.started[t]]
}

// start records the start of a task that ends at the given time. It returns the successor, or -1.
func (p *progress) start(t task, end int64) (successor task) {
	p.started[t]++
	if successor = p.successor[t]; successor >= 0 {
		p.arrivals[successor] = append(p.arrivals[successor], end+p.lag[t])
	}
	return successor
}

// evaluator computes when the tasks of an order run if each starts as early as possible.
type evaluator struct {
	progress
	starts [][]int64 // by rank and position in its order

	awaited  []bool  // by task: its rank waits for the next input
	position []int   // by rank: position of its next task
	now      []int64 // by rank
	ready    []int   // ranks that may be able to run their next task
}

// timing is the duration of an order, by both clocks.
type timing struct{ makespan, span int64 }

func newEvaluator(s *jobShop) *evaluator {
	e := &evaluator{
		progress: newProgress(s), starts: make([][]int64, s.ranks), awaited: make([]bool, len(s.duration)),
		position: make([]int, s.ranks), now: make([]int64, s.ranks),
	}
	for rank := range e.starts {
		e.starts[rank] = make([]int64, s.parts()*len(s.blocksOn[rank])*s.microbatches)
	}
	return e
}

// run executes an order. It returns false if the order ends in a deadlock.
func (e *evaluator) run(o order) (timing, bool) {
	e.reset()
	clear(e.awaited)
	clear(e.position)
	clear(e.now)
	e.ready = e.ready[:0]
	for rank := range o {
		e.ready = append(e.ready, rank)
	}
	for len(e.ready) > 0 {
		rank := e.ready[len(e.ready)-1]
		e.ready = e.ready[:len(e.ready)-1]
		e.advance(rank, o[rank])
	}
	var t timing
	for rank, tasks := range o {
		if e.position[rank] < len(tasks) {
			return timing{}, false
		}
		if len(tasks) > 0 {
			t.makespan = max(t.makespan, e.now[rank])
			t.span = max(t.span, e.now[rank]-e.starts[rank][0])
		}
	}
	return t, true
}

// advance runs the tasks of a rank until one has to wait.
func (e *evaluator) advance(rank int, tasks []task) {
	now, i, starts := e.now[rank], e.position[rank], e.starts[rank]
	for ; i < len(tasks); i++ {
		t := tasks[i]
		if t.part() == weight {
			if e.started[t] >= e.started[t-1] {
				break // deadlock: W is before its I on the same rank
			}
		} else if arrival := e.arrival(t); arrival != infinity {
			now = max(now, arrival)
		} else {
			e.awaited[t] = true
			break
		}
		starts[i] = now
		now += e.duration[t]
		if successor := e.start(t, now); successor >= 0 && e.awaited[successor] {
			e.awaited[successor] = false
			e.ready = append(e.ready, e.blocks[successor.block()].rank)
		}
	}
	e.now[rank], e.position[rank] = now, i
}

package schedule

import "slices"

// A clock lets all ranks of a plan without transfers go on together, round after round.
// F, I and W take a round, B takes two. What ends in a round is there for others in the
// next one.
//
// A rank without any backward gets no gradients, so nothing would hold it back: it is
// slowed down to the pace of the rank with the most work for a microbatch.
type clock struct {
	walk
	*outline
	ranks  []cursor
	duties []duty  // by rank
	pace   []int   // by rank: a round of work takes most/pace rounds
	most   int     // rounds for a microbatch on the busiest rank
	queues []queue // what is on its way, in the visitor's own meaning; a period moves it along
	period
}

// duty is what a rank does, or did last.
type duty struct {
	action Action
	with   Action // the one before, where that is joined with it; else 0
	left   int    // rounds until it ends; 0 where it has
	owed   int    // what pacing has left over
}

// clocked is what a clock calls.
type clocked interface {
	// write takes an action that is no computation.
	write(rank int, a Action)
	// ready reports whether the rank can begin the computation now. What it asks, it asks the
	// clock's sets, or notes (clock.note).
	ready(rank int, a Action, mb int64) bool
	// act begins the computation, end ends what the rank does. While clock.trial is set they
	// change sets and queues only.
	act(rank int, a Action, mb int64)
	end(rank int, d duty)
	// exchange is called at the end of every round.
	exchange()
	// begin is called where a period may begin. repeats is called where what ran since
	// then stands for n more of itself, each moved on by the stride.
	begin()
	repeats(n, stride int64)
}

// newClock returns a clock of the plan's ranks over so many empty sets and queues.
func newClock(o *outline, sets, queues int) clock {
	ranks := len(o.plan.Programs)
	c := clock{
		walk: newWalk(sets), outline: o, ranks: make([]cursor, ranks), duties: make([]duty, ranks),
		pace: make([]int, ranks), queues: make([]queue, queues), period: period{steps: make([]int, ranks)},
	}
	for rank, program := range o.plan.Programs {
		c.ranks[rank].program = program
		for _, s := range program {
			c.watching = c.watching || s.Repeat > 4
		}
		c.pace[rank] = c.roundsOf(rank)
	}
	c.most = slices.Max(c.pace)
	for rank, stages := range o.on {
		if slices.ContainsFunc(stages, o.hasBackward) {
			c.pace[rank] = c.most
		}
	}
	return c
}

// roundsOf returns how much work a microbatch is on a rank.
func (c *clock) roundsOf(rank int) (sum int) {
	for _, stage := range c.on[rank] {
		sum += rounds(F)
		switch {
		case !c.hasBackward(stage):
		case c.plan.frozen(stage):
			sum += rounds(I)
		default:
			sum += rounds(B)
		}
	}
	return sum
}

// rounds is how long a computation takes.
func rounds(kind Kind) int {
	if kind == B {
		return 2
	}
	return 1
}

// run goes on until no rank can: to the end of all programs, unless ranks block each
// other or the limit of work is reached.
func (c *clock) run(v clocked) {
	c.watch(v, firstPeriod)
	for !c.exhausted && c.round(v) {
		if c.watching {
			c.seek(v)
		}
	}
	c.log = nil
}

// round gives each rank a turn, and reports whether any of them could use it.
func (c *clock) round(v clocked) bool {
	moved := false
	for rank := range c.ranks {
		if c.duties[rank].left > 0 || c.turn(v, rank) {
			moved = true
		}
	}
	for rank := range c.duties {
		if d := &c.duties[rank]; d.left > 0 {
			if d.left--; d.left == 0 {
				v.end(rank, *d)
			}
		}
	}
	v.exchange()
	return moved
}

// turn lets a rank begin its next computation, if it can. What comes before it takes no
// time.
func (c *clock) turn(v clocked, rank int) bool {
	p := &c.ranks[rank]
	a, ok := p.action()
	for ok && !a.Kind().Compute() {
		v.write(rank, a)
		p.advance()
		a, ok = p.action()
	}
	if !ok {
		return false
	}
	mb := int64(a.Microbatch())
	if !c.note(v.ready(rank, a, mb)) {
		return false
	}
	v.act(rank, a, mb)

	d := &c.duties[rank]
	d.with = 0
	if d.action.Joined() {
		d.with = d.action
	}
	d.owed += rounds(a.Kind()) * c.most
	d.action, d.left, d.owed = a, d.owed/c.pace[rank], d.owed%c.pace[rank]
	p.advance()
	if c.work++; c.work > maxWork || c.held > maxHeld {
		c.exhausted = true
	}
	return true
}

// busy reports whether the rank is at a computation, or between the two of a pair.
func (c *clock) busy(rank int) bool {
	return c.duties[rank].left > 0 || c.duties[rank].action.Joined()
}

// push adds an action to a queue, and notes what that did.
func (c *clock) push(queue int, a Action) { c.branch(c.queues[queue].push(a), single) }

// pop takes an action from a queue that has one, and notes what that did.
func (c *clock) pop(queue int) Action {
	a, what := c.queues[queue].pop()
	c.branch(what, single)
	return a
}

package passes

import (
	"github.com/weir-ml/weir/schedule"
	"slices"
)

// A clock lets all ranks of a plan without transfers go on together, round after round.
// F, I and W take a round, B takes two. What ends in a round is there for others in the
// next one.
//
// A rank without any backward gets no gradients, so nothing would hold it back: it is
// slowed down to the pace of the rank with the most work for a microbatch.
type Clock struct {
	Walk
	*Outline
	Ranks  []Cursor
	Duties []Duty  // by rank
	pace   []int   // by rank: a round of work takes most/pace rounds
	most   int     // rounds for a microbatch on the busiest rank
	Queues []Queue // what is on its way, in the visitor's own meaning; a period moves it along
	period
}

// duty is what a rank does, or did last.
type Duty struct {
	Action schedule.Action
	With   schedule.Action // the one before, where that is joined with it; else 0
	left   int             // rounds until it ends; 0 where it has
	owed   int             // what pacing has left over
}

// clocked is what a clock calls.
type clocked interface {
	// write takes an action that is no computation.
	Write(rank int, a schedule.Action)
	// ready reports whether the rank can begin the computation now. What it asks, it asks the
	// clock's sets, or notes (clock.note).
	Ready(rank int, a schedule.Action, mb int64) bool
	// act begins the computation, end ends what the rank does. While clock.trial is set they
	// change sets and queues only.
	Act(rank int, a schedule.Action, mb int64)
	End(rank int, d Duty)
	// exchange is called at the end of every round.
	Exchange()
	// begin is called where a period may begin. repeats is called where what ran since
	// then stands for n more of itself, each moved on by the stride.
	Begin()
	Repeats(n, stride int64)
}

// newClock returns a clock of the plan's ranks over so many empty sets and queues.
func NewClock(o *Outline, sets, queues int) Clock {
	ranks := len(o.Plan.Programs)
	c := Clock{
		Walk: NewWalk(sets), Outline: o, Ranks: make([]Cursor, ranks), Duties: make([]Duty, ranks),
		pace: make([]int, ranks), Queues: make([]Queue, queues), period: period{steps: make([]int, ranks)},
	}
	for rank, program := range o.Plan.Programs {
		c.Ranks[rank].Program = program
		for _, s := range program {
			c.watching = c.watching || s.Repeat > 4
		}
		c.pace[rank] = c.roundsOf(rank)
	}
	c.most = slices.Max(c.pace)
	for rank, stages := range o.On {
		if slices.ContainsFunc(stages, o.HasBackward) {
			c.pace[rank] = c.most
		}
	}
	return c
}

// roundsOf returns how much work a microbatch is on a rank.
func (c *Clock) roundsOf(rank int) (sum int) {
	for _, stage := range c.On[rank] {
		sum += rounds(schedule.F)
		switch {
		case !c.HasBackward(stage):
		case c.Plan.IsFrozen(stage):
			sum += rounds(schedule.I)
		default:
			sum += rounds(schedule.B)
		}
	}
	return sum
}

// rounds is how long a computation takes.
func rounds(kind schedule.Kind) int {
	if kind == schedule.B {
		return 2
	}
	return 1
}

// run goes on until no rank can: to the end of all programs, unless ranks block each
// other or the limit of work is reached.
func (c *Clock) Run(v clocked) {
	c.watch(v, firstPeriod)
	for !c.Exhausted && c.round(v) {
		if c.watching {
			c.seek(v)
		}
	}
	c.Log = nil
}

// round gives each rank a turn, and reports whether any of them could use it.
func (c *Clock) round(v clocked) bool {
	moved := false
	for rank := range c.Ranks {
		if c.Duties[rank].left > 0 || c.turn(v, rank) {
			moved = true
		}
	}
	for rank := range c.Duties {
		if d := &c.Duties[rank]; d.left > 0 {
			if d.left--; d.left == 0 {
				v.End(rank, *d)
			}
		}
	}
	v.Exchange()
	return moved
}

// turn lets a rank begin its next computation, if it can. What comes before it takes no
// time.
func (c *Clock) turn(v clocked, rank int) bool {
	p := &c.Ranks[rank]
	a, ok := p.Action()
	for ok && !a.Kind().Compute() {
		v.Write(rank, a)
		p.Advance()
		a, ok = p.Action()
	}
	if !ok {
		return false
	}
	mb := int64(a.Microbatch())
	if !c.Note(v.Ready(rank, a, mb)) {
		return false
	}
	v.Act(rank, a, mb)

	d := &c.Duties[rank]
	d.With = 0
	if d.Action.Joined() {
		d.With = d.Action
	}
	d.owed += rounds(a.Kind()) * c.most
	d.Action, d.left, d.owed = a, d.owed/c.pace[rank], d.owed%c.pace[rank]
	p.Advance()
	if c.work++; c.work > MaxWork || c.held > maxHeld {
		c.Exhausted = true
	}
	return true
}

// busy reports whether the rank is at a computation, or between the two of a pair.
func (c *Clock) Busy(rank int) bool {
	return c.Duties[rank].left > 0 || c.Duties[rank].Action.Joined()
}

// push adds an action to a queue, and notes what that did.
func (c *Clock) Push(queue int, a schedule.Action) { c.branch(c.Queues[queue].Push(a), single) }

// pop takes an action from a queue that has one, and notes what that did.
func (c *Clock) Pop(queue int) schedule.Action {
	a, what := c.Queues[queue].Pop()
	c.branch(what, single)
	return a
}

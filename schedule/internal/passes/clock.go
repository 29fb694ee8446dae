package passes

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// A Clock is a Machine that runs the ranks of a plan without transfers in rounds. F, I and W take
// one round, B takes two. A result is available to other ranks in the round after its computation
// has ended.
//
// A rank without a backward receives no gradients, so no later rank would slow it down, and its
// messages in flight would grow. Clock slows it down to the speed of the rank with the most work per
// microbatch.
//
// A period is a number of rounds after which the configuration recurs: every rank is at the same
// action of its body, either unmoved or later by a common number of microbatches, and the ends of the
// ranges of messages in flight are unmoved or have moved by the same number.
type Clock struct {
	Machine
	Duties []Duty  // by rank
	Queues []Queue // of messages in flight; the visitor defines their meaning, and Skip shifts them
	// Bounded is the index of the first queue whose length may change over a period.
	Bounded int

	pace           []int // by rank: a round of work takes maxRounds/pace rounds, 1 if the rank is not slowed down
	maxRounds      int   // the rounds of work per microbatch on the busiest rank
	detectsPeriods bool  // a segment has enough repeats for periods
	settleRounds   int   // rounds without a rank entering a segment before a period begins
	settleLeft     int   // the remaining number of these rounds
	shift          int64 // the signed number of microbatches by which the last period advanced
}

// Duty is the current computation of a rank, or its last one.
type Duty struct {
	Action     schedule.Action
	With       schedule.Action // the previous action, if it is joined with Action; else 0
	roundsLeft int             // rounds until it ends; 0 after its end
	remainder  int             // carried over to the next computation, in 1/pace rounds
}

// clockVisitor is the visitor of a Clock.
type clockVisitor interface {
	// Write receives an action that is not a computation.
	Write(rank int, a schedule.Action)
	// Ready reports whether the rank can begin the computation now. The result may depend only on
	// the clock's sets and queues.
	Ready(rank int, a schedule.Action, mb int64) bool
	// Act begins a computation of the rank. End ends the current one.
	Act(rank int, a schedule.Action, mb int64)
	End(rank int, d Duty)
	// Exchange is called at the end of every round.
	Exchange()
	// Begin is called at the beginning of a period. Repeats is called at the end of a period if n
	// further periods are skipped, each shifted by stride microbatches.
	Begin()
	Repeats(n, stride int64)
}

// NewClock returns a clock for a visitor with the given numbers of sets and queues.
func NewClock(o *Outline, sets, queues int) Clock {
	ranks := len(o.Plan.Programs)
	c := Clock{Machine: newMachine(o, o.Plan.Programs, sets, o.Allowance/8), Duties: make([]Duty, ranks), Queues: make([]Queue, queues), pace: make([]int, ranks)}
	c.settleRounds = min(ranks/8, 8)
	longest := 0 // rounds
	for rank, program := range o.Plan.Programs {
		for _, s := range program {
			if s.Repeat > 4 {
				c.detectsPeriods, longest = true, max(longest, roundsIn(&s))
			}
		}
		c.pace[rank] = c.roundsOf(rank)
	}
	c.engine.Expect(longest)
	c.maxRounds = slices.Max(c.pace)
	for rank, stages := range o.On {
		if slices.ContainsFunc(stages, o.HasBackward) {
			c.pace[rank] = c.maxRounds
		}
	}
	return c
}

// roundsOf returns the number of rounds of work per microbatch on a rank.
func (c *Clock) roundsOf(rank int) (sum int) {
	for _, stage := range c.outline.On[rank] {
		sum += rounds(schedule.F)
		switch {
		case !c.outline.HasBackward(stage):
		case c.outline.Plan.IsFrozen(stage):
			sum += rounds(schedule.I)
		default:
			sum += rounds(schedule.B)
		}
	}
	return sum
}

// roundsIn returns the minimum number of rounds that a repeat of a segment takes.
func roundsIn(s *schedule.Segment) (sum int) {
	for _, inner := range s.Inside() {
		for _, a := range inner.Body {
			if a.Kind().Compute() {
				sum += inner.Repeat * rounds(a.Kind())
			}
		}
	}
	return sum
}

// rounds returns the number of rounds that a computation takes.
func rounds(kind schedule.Kind) int {
	if kind == schedule.B {
		return 2
	}
	return 1
}

// Run runs the ranks until none can continue: to the end of all programs, unless the ranks deadlock or
// the limit of work is reached.
func (c *Clock) Run(v clockVisitor) {
	c.look(v)
	for !c.Sets.Exhausted && c.round(v) {
		c.look(v)
	}
	c.engine.Stop()
}

// look skips periods if a period ends now. A period in which a rank enters another segment does not
// recur. Therefore look begins no period until settleRounds rounds have passed without that: in a
// warm-up, a rank enters a segment in nearly every round.
func (c *Clock) look(v clockVisitor) {
	if !c.detectsPeriods {
		return
	}
	if c.settleLeft > 0 {
		if c.settleLeft == c.settleRounds {
			c.engine.Forget()
		}
		c.settleLeft--
		return
	}
	if n := c.engine.Look(c); n > 0 {
		v.Repeats(n, c.shift)
	}
	if c.engine.Began() {
		v.Begin()
		c.beginPeriod()
	}
}

// round gives each rank a turn, and reports whether any rank is computing.
func (c *Clock) round(v clockVisitor) bool {
	moved := false
	for rank := range c.Ranks {
		if c.Duties[rank].roundsLeft > 0 || c.turn(v, rank) {
			moved = true
		}
	}
	for rank := range c.Duties {
		if d := &c.Duties[rank]; d.roundsLeft > 0 {
			if d.roundsLeft--; d.roundsLeft == 0 {
				c.Sets.Sign = c.directions[rank]
				v.End(rank, *d)
			}
		}
	}
	c.Sets.Sign = 0
	if i := slices.IndexFunc(c.directions, func(sign int8) bool { return sign != 0 }); i >= 0 {
		c.Sets.Sign = c.directions[i] // messages shift with their ranks
	}
	v.Exchange()
	return moved
}

// turn begins the next computation of a rank if it is ready, and reports whether it did. The actions before
// the computation take no time.
func (c *Clock) turn(v clockVisitor, rank int) bool {
	p := &c.Ranks[rank]
	a, ok := p.Action()
	for ok && !a.Kind().Compute() {
		v.Write(rank, a)
		if p.Advance(); p.Repeat == 0 && p.Starts() {
			c.settleLeft = c.settleRounds
		}
		a, ok = p.Action()
	}
	if !ok {
		return false
	}
	mb := int64(a.Microbatch())
	c.Sets.Sign = c.directions[rank]
	if !v.Ready(rank, a, mb) {
		return false
	}
	v.Act(rank, a, mb)

	d := &c.Duties[rank]
	d.With = 0
	if d.Action.Joined() {
		d.With = d.Action
	}
	d.remainder += rounds(a.Kind()) * c.maxRounds
	d.Action, d.roundsLeft, d.remainder = a, d.remainder/c.pace[rank], d.remainder%c.pace[rank]
	if p.Advance(); p.Repeat == 0 && p.Starts() {
		c.settleLeft = c.settleRounds
	}
	c.Sets.Spend(1)
	return true
}

// Busy reports whether the rank is computing, or between the two computations of a pair.
func (c *Clock) Busy(rank int) bool {
	return c.Duties[rank].roundsLeft > 0 || c.Duties[rank].Action.Joined()
}

// State adds the configuration: the positions of all ranks, their computations, and the queues.
func (c *Clock) State(s *repeats.State) {
	if !c.state(s) {
		return
	}
	for rank := range c.Duties {
		d := &c.Duties[rank]
		if !s.Fixed(int64(d.roundsLeft)) || !s.Fixed(int64(d.remainder)) || !s.Fixed(int64(withoutMicrobatch(d.Action))) || !s.Fixed(int64(withoutMicrobatch(d.With))) ||
			!s.Moving(int64(d.Action.Microbatch())) || !s.Moving(int64(d.With.Microbatch())) {
			return
		}
	}
	for i := range c.Queues {
		for section, part := range c.Queues[i].Ranges() {
			if !s.Fixed(int64(section)) || !s.Fixed(int64(withoutMicrobatch(part.Head))) || !s.Fixed(int64(part.Step)) || !s.Moving(int64(part.Head.Microbatch())) || !s.Moving(int64(part.N)) {
				return
			}
		}
		if !s.Fixed(-1) { // the end of the queue
			return
		}
	}
}

// withoutMicrobatch returns an action without its microbatch.
func withoutMicrobatch(a schedule.Action) schedule.Action {
	return schedule.NewAction(a.Kind(), a.Stage(), 0).WithDrop(a.Drop()).WithJoin(a.Joined())
}

// Moves returns the number of microbatches by which the period advances, which must be the same, with
// the same sign, for all moving values, and the number of further periods after which every rank is
// still in its segment and no range of a queue has become empty. It returns zeros if the period does not recur.
func (c *Clock) Moves(deltas []int64) (shift, limit int64) {
	if shift, limit = c.moved(deltas); shift == 0 {
		return 0, 0
	}
	deltas, c.shift = deltas[len(c.Ranks):], 0
	for rank := range c.Duties {
		d, moved := &c.Duties[rank], int64(c.directions[rank])*shift
		if deltas[0] != moved || deltas[1] != moved && d.With != 0 || moved == -c.shift && moved != 0 {
			return 0, 0
		}
		if moved != 0 {
			c.shift = moved
		}
		deltas = deltas[2:]
	}
	for i := range c.Queues {
		for _, part := range c.Queues[i].Ranges() {
			head, n := deltas[0], deltas[1]
			deltas = deltas[2:]
			end := head + int64(part.Step)*n
			if head != 0 && head != c.shift || end != 0 && end != c.shift || n != 0 && i < c.Bounded {
				return 0, 0
			}
			if n < 0 {
				limit = min(limit, (int64(part.N)+n-2)/-n)
			}
		}
	}
	return shift, limit
}

// Skip advances ranks, computations and queues by n periods.
func (c *Clock) Skip(n int64, deltas []int64) {
	c.skip(n, deltas)
	deltas = deltas[len(c.Ranks):]
	for rank := range c.Duties {
		d := &c.Duties[rank]
		d.Action = d.Action.Shift(int(n * deltas[0]))
		if d.With != 0 {
			d.With = d.With.Shift(int(n * deltas[1]))
		}
		deltas = deltas[2:]
	}
	for i := range c.Queues {
		deltas = c.Queues[i].skip(int(n), deltas)
	}
}

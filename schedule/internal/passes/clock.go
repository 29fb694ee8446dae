package passes

import (
	"math"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// A Clock lets all ranks of a plan without transfers go on together, round after round.
// F, I and W take a round, B takes two. What ends in a round is there for others in the
// next one.
//
// A rank without any backward gets no gradients, so nothing would hold it back: it is
// slowed down to the pace of the rank with the most work for a microbatch.
//
// It skips repeats (package repeats). A period of it is a number of rounds after which
// every rank is back at the same place of its body, moved on by the same number of
// microbatches or not at all, and what is on its way between ranks has moved with them.
type Clock struct {
	repeats.Engine
	*Outline
	Ranks  []Cursor
	Duties []Duty  // by rank
	Queues []Queue // what is on its way, in the visitor's own meaning; a period moves it along
	// Bounded is up to which queue more or fewer actions in one matter.
	Bounded int

	pace     []int   // by rank: a round of work takes most/pace rounds
	most     int     // rounds for a microbatch on the busiest rank
	watching bool    // a period is looked for
	settling int     // the rounds for which no rank may have come to another segment where one begins; 0 where a warm-up is short
	unsteady int     // how many of them are left
	moved    int64   // by how many microbatches the last period moved, of either sign
	began    []int64 // by rank: its position when the period began
	waited   []bool  // by rank: it did not go on in the period before
}

// Duty is what a rank does, or did last.
type Duty struct {
	Action schedule.Action
	With   schedule.Action // the one before, where that is joined with it; else 0
	left   int             // rounds until it ends; 0 where it has
	owed   int             // what pacing has left over
}

// clocked is what a clock calls.
type clocked interface {
	// Write takes an action that is no computation.
	Write(rank int, a schedule.Action)
	// Ready reports whether the rank can begin the computation now. What it asks, it asks the
	// clock's sets and queues.
	Ready(rank int, a schedule.Action, mb int64) bool
	// Act begins the computation, End ends what the rank does.
	Act(rank int, a schedule.Action, mb int64)
	End(rank int, d Duty)
	// Exchange is called at the end of every round.
	Exchange()
	// Begin is called where a period may begin. Repeats is called where what ran since
	// then stands for n more of itself, each moved on by the stride.
	Begin()
	Repeats(n, stride int64)
}

// NewClock returns a clock of the plan's ranks over so many empty sets and queues.
func NewClock(o *Outline, sets, queues int) Clock {
	ranks := len(o.Plan.Programs)
	c := Clock{
		Engine: repeats.NewEngine(sets, o.Allowance/8), Outline: o, Ranks: make([]Cursor, ranks), Duties: make([]Duty, ranks),
		pace: make([]int, ranks), Queues: make([]Queue, queues), began: make([]int64, ranks), waited: make([]bool, ranks),
	}
	c.settling = min(ranks/8, 8)
	longest := 0 // rounds
	for rank, program := range o.Plan.Programs {
		c.Ranks[rank] = NewCursor(program, 0)
		for _, s := range program {
			if s.Repeat > 4 {
				c.watching, longest = true, max(longest, roundsIn(&s))
			}
		}
		c.pace[rank] = c.roundsOf(rank)
	}
	for rank := range c.began {
		c.began[rank] = -1
	}
	c.Expect(longest)
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

// roundsIn returns how long a repeat of a segment takes at least.
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

// rounds is how long a computation takes.
func rounds(kind schedule.Kind) int {
	if kind == schedule.B {
		return 2
	}
	return 1
}

// Run goes on until no rank can: to the end of all programs, unless ranks block each
// other or the limit of work is reached.
func (c *Clock) Run(v clocked) {
	c.look(v)
	for !c.Exhausted && c.round(v) {
		c.look(v)
	}
	c.Stop()
}

// look skips periods, where one ends. None has a rank that comes to another segment, as
// nearly every round of a warm-up has.
func (c *Clock) look(v clocked) {
	if !c.watching {
		return
	}
	if c.unsteady > 0 {
		if c.unsteady == c.settling {
			c.Forget()
		}
		c.unsteady--
		return
	}
	if n := c.Look(c); n > 0 {
		v.Repeats(n, c.moved)
	}
	if c.Began() {
		v.Begin()
		for rank := range c.Ranks {
			p := &c.Ranks[rank]
			c.waited[rank] = p.Position == c.began[rank]
			c.began[rank] = p.Position
		}
	}
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
				c.Sign = c.direction(rank)
				v.End(rank, *d)
			}
		}
	}
	c.Sign = c.flow()
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
		if p.Advance(); p.Repeat == 0 && p.Starts() {
			c.unsteady = c.settling
		}
		a, ok = p.Action()
	}
	if !ok {
		return false
	}
	mb := int64(a.Microbatch())
	c.Sign = c.direction(rank)
	if !v.Ready(rank, a, mb) {
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
	if p.Advance(); p.Repeat == 0 && p.Starts() {
		c.unsteady = c.settling
	}
	c.Spend(1)
	return true
}

// Busy reports whether the rank is at a computation, or between the two of a pair.
func (c *Clock) Busy(rank int) bool {
	return c.Duties[rank].left > 0 || c.Duties[rank].Action.Joined()
}

// direction returns in which direction a rank is taken to move in a period.
func (c *Clock) direction(rank int) int8 {
	if s := c.Ranks[rank].repeating(); s != nil && !c.waited[rank] {
		return sign(s.Stride)
	}
	return 0
}

// flow returns in which direction messages are taken to move.
func (c *Clock) flow() int8 {
	for rank := range c.Ranks {
		if d := c.direction(rank); d != 0 {
			return d
		}
	}
	return 0
}

// State tells where all ranks are, what they do, and what is on its way.
func (c *Clock) State(s *repeats.State) {
	for rank := range c.Ranks {
		p, d := &c.Ranks[rank], &c.Duties[rank]
		if !p.state(s) || !s.Fixed(int64(d.left)) || !s.Fixed(int64(d.owed)) ||
			!s.Fixed(int64(bare(d.Action))) || !s.Fixed(int64(bare(d.With))) ||
			!s.Moving(int64(d.Action.Microbatch())) || !s.Moving(int64(d.With.Microbatch())) {
			return
		}
	}
	for i := range c.Queues {
		list := c.Queues[i].List()
		if !s.Fixed(int64(len(list))) {
			return
		}
		for k := range list {
			of := &list[k]
			if !s.Fixed(int64(bare(of.Head))) || !s.Fixed(int64(of.Step)) || !s.Moving(int64(of.Head.Microbatch())) || !s.Moving(int64(of.N)) {
				return
			}
		}
	}
}

// bare returns an action without its microbatch.
func bare(a schedule.Action) schedule.Action {
	return schedule.Act(a.Kind(), a.Stage(), 0).WithDrop(a.Drop()).WithJoin(a.Joined())
}

// Moves wants all that moves to move by the same number of microbatches, and leaves the
// last repeats of a segment and the last actions of a queue.
func (c *Clock) Moves(by []int64) (shift, most int64) {
	most, c.moved = math.MaxInt64, 0
	for rank := range c.Ranks {
		step, d := by[3*rank], &c.Duties[rank]
		if (step == 0) != (c.direction(rank) == 0) {
			return 0, 0 // it was taken for another one
		}
		if step == 0 {
			if by[3*rank+1] != 0 || by[3*rank+2] != 0 {
				return 0, 0
			}
			continue
		}
		p := &c.Ranks[rank]
		s := &p.Program[p.Segment]
		if moved := step * int64(s.Stride); c.moved == 0 {
			c.moved = moved
		} else if c.moved != moved {
			return 0, 0
		}
		if by[3*rank+1] != c.moved || by[3*rank+2] != c.moved && d.With != 0 {
			return 0, 0
		}
		most = min(most, int64(s.Repeat-1-p.Repeat)/step)
	}
	if c.moved == 0 {
		return 0, 0
	}
	by = by[3*len(c.Ranks):]
	for i := range c.Queues {
		for _, of := range c.Queues[i].List() {
			head, n := by[0], by[1]
			by = by[2:]
			end := head + int64(of.Step)*n
			if head != 0 && head != c.moved || end != 0 && end != c.moved || n != 0 && i < c.Bounded {
				return 0, 0
			}
			if n < 0 {
				most = min(most, (int64(of.N)+n-2)/-n)
			}
		}
	}
	return max(c.moved, -c.moved), most
}

// Skip moves ranks and queues by n periods.
func (c *Clock) Skip(n int64, by []int64) {
	for rank := range c.Ranks {
		d := &c.Duties[rank]
		c.Ranks[rank].Skip(int(n * by[3*rank]))
		d.Action = d.Action.Shift(int(n * by[3*rank+1]))
		if d.With != 0 {
			d.With = d.With.Shift(int(n * by[3*rank+2]))
		}
	}
	by = by[3*len(c.Ranks):]
	for i := range c.Queues {
		q := &c.Queues[i]
		for k := range q.List() {
			of := &q.List()[k]
			of.Head = of.Head.Shift(int(n * by[0]))
			of.N += int(n * by[1])
			q.N += int(n * by[1])
			by = by[2:]
		}
	}
}

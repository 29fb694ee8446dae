package passes

import (
	"math"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// RoundRobin is a Machine that gives the ranks turns, alternately in ascending and descending
// order, as microbatches flow. In its turn a rank runs its next actions until the visitor blocks
// it. The visitor must be monotone (see the package documentation).
//
// A period advances every rank whose segment repeats by the same number of microbatches.
type RoundRobin struct {
	Machine
	Counts  []int64 // Room compares them with Limit
	Limit   int64
	Visited int64 // actions that were run

	stops    []int64 // by rank: the position at which it stops in this period
	lengths  []int64 // by rank: the actions of a period
	down     bool    // the direction of the next round
	entered  bool    // a rank has entered another segment in this round
	due      int64   // the amount of work at which Run looks for the next period
	deferred int64   // the amount of work for which a short period was deferred

	// During a period that is compared:
	comparing bool
	room      []int64 // by count: the largest change that does not change a result of Room
	apart     int64   // the minimum distance in microbatches between ranks with different directions, as seen by Next
}

// Visitor is the visitor of a RoundRobin.
type Visitor interface {
	// Step runs the next action of the rank if it can run now, and reports whether it could. For
	// Run, the result may depend only on the machine's sets, Next and Room.
	Step(rank int, a schedule.Action) bool
}

const (
	// burst is the maximum number of actions that a rank runs in its turn.
	burst = 64
	// pause is the minimum number of actions between two attempts to find a period.
	pause = 1 << 10
)

// NewRoundRobin returns a machine for a visitor with the given numbers of sets and counts.
func NewRoundRobin(o *Outline, sets, counts int) RoundRobin {
	ranks := len(o.Plan.Programs)
	return RoundRobin{
		Machine: newMachine(o, sets, o.Allowance), Counts: make([]int64, counts), room: make([]int64, counts),
		stops: slices.Repeat([]int64{math.MaxInt64}, ranks), lengths: make([]int64, ranks),
	}
}

// Run runs until no rank can continue or the limit of work is reached. It skips repeats.
func (r *RoundRobin) Run(v Visitor) {
	for !r.Exhausted {
		if r.Periodic && !r.entered && r.Work() >= r.due {
			r.compare(v)
		}
		if !r.Round(v) {
			return
		}
	}
}

// Round gives each rank a turn, and reports whether any rank ran an action.
func (r *RoundRobin) Round(v Visitor) bool {
	moved := false
	r.entered = false
	for i := range r.Ranks {
		rank := i
		if r.down {
			rank = len(r.Ranks) - 1 - i
		}
		if r.Ranks[rank].Position < r.stops[rank] && r.turn(v, rank) {
			moved = true
		}
	}
	r.down = !r.down
	return moved
}

// turn runs the next actions of a rank, and reports whether it ran any.
func (r *RoundRobin) turn(v Visitor, rank int) bool {
	p := &r.Ranks[rank]
	segment, begin := p.Segment, p.Position
	r.Sign = r.directions[rank]
	tried := int64(0)
	if !p.run(v, rank, min(begin+burst, r.stops[rank])) {
		tried = 1
	}
	r.Spend(p.Position - begin + tried)
	r.entered = r.entered || p.Segment != segment
	r.Visited += p.Position - begin
	return p.Position > begin
}

// run runs actions of the rank up to a position or the end of the program, and reports false if the
// rank has to wait before that.
func (p *Cursor) run(v Visitor, rank int, end int64) bool {
	for p.Position < end && p.body != nil {
		if a, _ := p.Action(); !v.Step(rank, a) {
			return false
		}
		p.Advance()
	}
	return true
}

// Room reports whether a count is below the limit.
func (r *RoundRobin) Room(count int) bool {
	room := r.Limit - 1 - r.Counts[count]
	if r.comparing {
		r.room[count] = min(r.room[count], max(room, -1-room))
	}
	return room >= 0
}

// Next reports whether want is the next action of a rank, ignoring drops and joins. Only the
// visitor of the rank whose turn it is may call it.
func (r *RoundRobin) Next(rank int, want schedule.Action) bool {
	a, ok := r.Ranks[rank].Action()
	if !ok || a.Kind() != want.Kind() || a.Stage() != want.Stage() {
		return false
	}
	apart := int64(a.Microbatch() - want.Microbatch())
	if r.comparing && r.directions[rank] != r.Sign {
		r.apart = min(r.apart, max(apart, -apart))
	}
	return apart == 0
}

// Period runs a period, or a round if no period is possible now. It reports whether any rank ran an
// action.
func (r *RoundRobin) Period(v Visitor) bool {
	if actions, _ := r.measure(burst); actions == 0 {
		return r.Round(v)
	}
	return r.period(v)
}

// period runs the period that measure has computed. Each rank runs its part of the period and then
// waits for the others.
func (r *RoundRobin) period(v Visitor) bool {
	begin, end := r.Visited, r.Visited
	for rank := range r.Ranks {
		if p := &r.Ranks[rank]; p.body != nil {
			r.stops[rank] = p.Position + r.lengths[rank]
			end += r.lengths[rank]
		}
	}
	r.down = false
	for r.Visited < end && r.Round(v) {
	}
	for rank := range r.stops {
		r.stops[rank] = math.MaxInt64
	}
	return r.Visited > begin
}

// compare runs a period if one is possible now, and skips the periods that repeat it.
func (r *RoundRobin) compare(v Visitor) {
	began := r.Work()
	actions, short := r.measure(1) // a rank whose segment does not repeat runs one action, so that the period sees whether it can continue
	if actions == 0 || short && r.deferred < actions {
		wait := max(pause, actions/16)
		r.due, r.deferred = began+wait, r.deferred+wait
		return
	}
	r.deferred = 0
	r.beginPeriod()
	for i := range r.room {
		r.room[i] = math.MaxInt64
	}
	r.comparing, r.apart = true, math.MaxInt64
	r.Begin(r)
	r.period(v)
	r.due = r.Work()
	if r.End(r) == 0 {
		r.Stop()
		r.due += (r.Work() - began) / 2
	}
	r.comparing = false
}

// measure computes the number of actions that each rank runs in a period. A rank whose segment does
// not repeat runs lone actions. measure returns the sum over the repeating ranks, or 0 if no
// segment repeats or the least common multiple of the strides is too large. It also returns whether
// a rank reaches the end of its segment before the end of a second period.
func (r *RoundRobin) measure(lone int64) (actions int64, short bool) {
	stride := 1
	for rank := range r.Ranks {
		if s := r.Ranks[rank].repeating(); s != nil {
			if stride = LeastMultiple(stride, int(max(pace(s), 1))); stride > schedule.MaxMicrobatches {
				return 0, false
			}
		}
	}
	for rank := range r.Ranks {
		r.lengths[rank] = lone
		p := &r.Ranks[rank]
		if s := p.repeating(); s != nil {
			repeats := stride / int(max(pace(s), 1))
			r.lengths[rank] = int64(repeats) * s.Len()
			actions += r.lengths[rank]
			short = short || r.periodStarts[rank] != p.Position && s.Repeat-1-p.Repeat < 2*repeats
		}
	}
	if actions > r.Allowance>>3 {
		return 0, false
	}
	return actions, short
}

// State adds the configuration: the positions of all ranks, and the counts.
func (r *RoundRobin) State(s *repeats.State) {
	if !r.state(s) {
		return
	}
	for _, n := range r.Counts {
		if !s.Moving(n) {
			return
		}
	}
}

// Moves returns the number of microbatches by which the period advances, and the number of further
// periods in which no result of Room or Next changes.
func (r *RoundRobin) Moves(by []int64) (shift, most int64) {
	if shift, most = r.moved(by); shift == 0 {
		return 0, 0
	}
	most = min(most, (r.apart-1)/shift)
	for i, room := range r.room {
		if each := max(by[len(r.Ranks)+i], -by[len(r.Ranks)+i]); each > 0 {
			most = min(most, room/each)
		}
	}
	return shift, most
}

// Skip advances the ranks and the counts by n periods.
func (r *RoundRobin) Skip(n int64, by []int64) {
	r.skip(n, by)
	for i := range r.Counts {
		r.Counts[i] += n * by[len(r.Ranks)+i]
	}
}

package passes

import (
	"math"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// RoundRobin is a Machine that gives the ranks turns, up and down by turns as microbatches
// flow. In its turn a rank runs its next actions, as far as the visitor lets it. It is for
// visitors that come to the same end in every order (doc.go).
//
// A period of it moves every rank whose segment repeats by the same number of microbatches.
type RoundRobin struct {
	Machine
	Counts  []int64 // compared with Limit, by Room
	Limit   int64
	Visited int64 // actions that were run

	stops    []int64 // by rank: the position at which it stops in this period
	lengths  []int64 // by rank: the actions of a period
	down     bool    // the direction of the next round
	entered  bool    // a rank has come to another segment in this round
	due      int64   // the work at which Run looks for the next period
	deferred int64   // the work for which it has put a short one off

	// In a period that is compared:
	comparing bool
	room      []int64 // by count: how much more it may change until Room says something else
	apart     int64   // the least distance in microbatches that Next found between ranks that do not move alike
}

// Visitor is the visitor of a RoundRobin.
type Visitor interface {
	// Step runs the next action of the rank if it can run now, and reports whether it could.
	// A visitor of Run decides that by the machine's sets, Next and Room alone.
	Step(rank int, a schedule.Action) bool
}

const (
	// burst is how many actions a rank runs in its turn at most.
	burst = 64
	// pause is how many actions are run until the next period is looked for if there is none now.
	pause = 1 << 10
)

// NewRoundRobin returns a machine for a visitor that keeps this many sets and counts.
func NewRoundRobin(o *Outline, sets, counts int) RoundRobin {
	ranks := len(o.Plan.Programs)
	return RoundRobin{
		Machine: newMachine(o, sets, o.Allowance), Counts: make([]int64, counts), room: make([]int64, counts),
		stops: slices.Repeat([]int64{math.MaxInt64}, ranks), lengths: make([]int64, ranks),
	}
}

// Run goes on until no rank can, or the limit of work is reached. It skips repeats.
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

// Round gives each rank a turn, and reports whether any could use it.
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

// turn lets a rank run its next actions, and reports whether it could run any.
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

// run runs actions of the rank up to a position or the end of the program, and reports false if
// it has to wait before that.
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

// Next reports whether this is the next action of a rank, whatever it drops. The rank whose
// turn it is asks.
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

// Period runs a period, or a round if there is no period now. It reports whether any rank ran
// an action.
func (r *RoundRobin) Period(v Visitor) bool {
	if actions, _ := r.measure(burst); actions == 0 {
		return r.Round(v)
	}
	return r.period(v)
}

// period runs the period that was measured. Each rank runs its part of it and then waits for
// the others.
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

// compare runs a period if there is one now, and skips those that are like it.
func (r *RoundRobin) compare(v Visitor) {
	began := r.Work()
	actions, short := r.measure(1) // a rank whose segment does not repeat shows that it can go on
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

// measure finds out how many actions each rank runs in a period. It returns their sum, or 0
// if no segment repeats or the strides have no common multiple that is small enough, and
// whether a rank comes to the end of its segment before the end of a second period. A rank
// whose segment does not repeat runs this many actions.
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

// State is the configuration: where all ranks are, and the counts.
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

// Moves returns by how many microbatches the period moves, and how many more of it change
// neither what Room says nor what Next says.
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

// Skip moves the ranks and the counts by n periods.
func (r *RoundRobin) Skip(n int64, by []int64) {
	r.skip(n, by)
	for i := range r.Counts {
		r.Counts[i] += n * by[len(r.Ranks)+i]
	}
}

package passes

import (
	"math"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// RoundRobin is a Machine that gives each rank a turn, in ascending and descending order of ranks
// alternately, since microbatches flow in both directions. In its turn, a rank runs actions until it
// must wait. The visitor must be monotone (see the package documentation).
//
// A period advances every rank whose segment repeats by the same number of microbatches.
type RoundRobin struct {
	Machine
	Counts  []int64 // of the visitor; Room compares them with Limits
	Limits  []int64 // by count
	Visited int64   // the number of actions that have run

	peers          [][]int // by rank: the ranks for which the rank may wait, and which may wait for it
	waits          []bool  // by rank: the rank could not run its next action, and its peers have not run any since
	stops          []int64 // by rank: the position at which the rank stops in this period
	lengths        []int64 // by rank: the number of the rank's actions in a period
	descending     bool    // the direction of the next round
	segmentEntered bool    // a rank has entered another segment in this round
	nextAttempt    int64   // the amount of work at which Run tries the next period
	deferred       int64   // the amount of work for which a short period was deferred

	// During a period of compare:
	comparing   bool
	roomMargin  []int64 // by count: the largest change that preserves all results of Room
	minDistance int64   // the minimum of the distances, in microbatches, that calls of Next found between ranks of different directions
}

// Visitor is the visitor of a RoundRobin.
type Visitor interface {
	// Step runs the next action of the rank if it can run now, and reports whether it did. If Run skips
	// repeats, the result may depend only on the machine's sets, Next and Room.
	Step(rank int, a schedule.Action) bool
}

const (
	// burst is the maximum number of actions of a turn.
	burst = 64
	// pause is the minimum number of actions between two attempts to find a period.
	pause = 1 << 10
)

// NewRoundRobin returns a machine for a visitor with the given numbers of sets and counts.
func NewRoundRobin(o *Outline, sets, counts int) RoundRobin {
	r := newRoundRobin(o, o.Plan.Programs, sets, counts)
	join := func(rank, peer int) {
		if !slices.Contains(r.peers[rank], peer) {
			r.peers[rank] = append(r.peers[rank], peer)
		}
	}
	for stage, rank := range o.Plan.Placement.Rank {
		if o.Crosses(stage) {
			peer := o.Plan.Placement.Rank[stage+1]
			join(rank, peer)
			join(peer, rank)
		}
	}
	return r
}

// NewQueued returns a machine that also runs the given queues, after the ranks. A rank or queue may wait for
// any other, because queues of several ranks can wait for each other.
func NewQueued(o *Outline, queues [][]schedule.Segment, sets int) RoundRobin {
	r := newRoundRobin(o, slices.Concat(o.Plan.Programs, queues), sets, 0)
	all := make([]int, len(r.Ranks))
	for i := range all {
		all[i], r.peers[i] = i, all
	}
	return r
}

func newRoundRobin(o *Outline, programs [][]schedule.Segment, sets, counts int) RoundRobin {
	ranks := len(programs)
	return RoundRobin{
		Machine: newMachine(o, programs, sets, o.Allowance), Counts: make([]int64, counts), Limits: make([]int64, counts), roomMargin: make([]int64, counts),
		stops: slices.Repeat([]int64{math.MaxInt64}, ranks), lengths: make([]int64, ranks),
		peers: make([][]int, ranks), waits: make([]bool, ranks),
	}
}

// Run runs the ranks until none can continue or the limit of work is reached. It skips repeats.
func (r *RoundRobin) Run(v Visitor) {
	for !r.Sets.Exhausted {
		if r.Periodic && !r.segmentEntered && r.Sets.Work() >= r.nextAttempt {
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
	r.segmentEntered = false
	for i := range r.Ranks {
		rank := i
		if r.descending {
			rank = len(r.Ranks) - 1 - i
		}
		switch {
		case r.Ranks[rank].Position >= r.stops[rank]:
		case r.waits[rank]:
			r.Sets.Spend(1) // as much as a failed attempt
		case r.turn(v, rank):
			moved = true
		}
	}
	r.descending = !r.descending
	return moved
}

// turn runs the next actions of a rank, and reports whether it has run any.
func (r *RoundRobin) turn(v Visitor, rank int) bool {
	p := &r.Ranks[rank]
	segment, begin := p.Segment, p.Position
	r.Sets.Sign = r.directions[rank]
	tried := int64(0)
	if r.waits[rank] = !p.run(v, rank, min(begin+burst, r.stops[rank])); r.waits[rank] {
		tried = 1
	}
	ran := p.Position - begin
	r.Sets.Spend(ran + tried)
	if ran == 0 {
		return false
	}
	r.segmentEntered = r.segmentEntered || p.Segment != segment
	r.Visited += ran
	for _, peer := range r.peers[rank] {
		r.waits[peer] = false
	}
	return true
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

// Room reports whether a count can increase by an amount without exceeding its limit.
func (r *RoundRobin) Room(count int, amount int64) bool {
	room := r.Limits[count] - amount - r.Counts[count]
	if r.comparing {
		r.roomMargin[count] = min(r.roomMargin[count], max(room, -1-room))
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
	distance := int64(a.Microbatch() - want.Microbatch())
	if r.comparing && r.directions[rank] != r.Sets.Sign {
		r.minDistance = min(r.minDistance, max(distance, -distance))
	}
	return distance == 0
}

// Period runs a period, or a round if no period is possible now. It reports whether any rank ran an
// action.
func (r *RoundRobin) Period(v Visitor) bool {
	if actions, _ := r.measure(burst); actions == 0 {
		return r.Round(v)
	}
	return r.period(v)
}

// period runs a period of the lengths that measure has computed. Each rank runs its actions and then
// stops until the others have run theirs. period reports whether any rank ran an action.
func (r *RoundRobin) period(v Visitor) bool {
	begin, end := r.Visited, r.Visited
	for rank := range r.Ranks {
		if p := &r.Ranks[rank]; p.body != nil {
			r.stops[rank] = p.Position + r.lengths[rank]
			end += r.lengths[rank]
		}
	}
	r.descending = false
	clear(r.waits)
	for r.Visited < end && r.Round(v) {
	}
	for rank := range r.stops {
		r.stops[rank] = math.MaxInt64
	}
	return r.Visited > begin
}

// compare runs a period if one is possible now, and skips the periods that repeat it.
func (r *RoundRobin) compare(v Visitor) {
	start := r.Sets.Work()
	// A rank whose segment does not repeat runs one action if it can. The period then does not recur.
	actions, short := r.measure(1)
	if actions == 0 || short && r.deferred < actions {
		wait := max(pause, actions/16)
		r.nextAttempt, r.deferred = start+wait, r.deferred+wait
		return
	}
	r.deferred = 0
	r.beginPeriod()
	for i := range r.roomMargin {
		r.roomMargin[i] = math.MaxInt64
	}
	r.comparing, r.minDistance = true, math.MaxInt64
	r.engine.Begin(r)
	r.period(v)
	r.nextAttempt = r.Sets.Work()
	if r.engine.End(r) == 0 {
		r.engine.Stop()
		r.nextAttempt += (r.Sets.Work() - start) / 2
	}
	r.comparing = false
}

// measure sets the number of actions of each rank in a period. It is nonRepeating for a rank whose
// segment does not repeat. measure returns the sum over the repeating ranks, or 0 if there are none or
// a period would be too long. It also reports whether a rank reaches the end of its segment before the
// end of a second period, so that no period can be skipped.
func (r *RoundRobin) measure(nonRepeating int64) (actions int64, short bool) {
	stride := 1
	for rank := range r.Ranks {
		if s := r.Ranks[rank].repeating(); s != nil {
			if stride = LeastMultiple(stride, int(max(absStride(s), 1))); stride > schedule.MaxMicrobatches {
				return 0, false
			}
		}
	}
	for rank := range r.Ranks {
		r.lengths[rank] = nonRepeating
		p := &r.Ranks[rank]
		if s := p.repeating(); s != nil {
			repeats := stride / int(max(absStride(s), 1))
			r.lengths[rank] = int64(repeats) * s.Len()
			actions += r.lengths[rank]
			short = short || r.periodStarts[rank] != p.Position && s.Repeat-1-p.Repeat < 2*repeats
		}
	}
	if actions > r.outline.Allowance>>3 {
		return 0, false
	}
	return actions, short
}

// State adds the configuration to s: the positions of all ranks, and the counts.
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
// periods in which every rank is still in its segment and no result of Room or Next changes. It returns
// zeros if the period does not recur. The distance between a rank that has advanced
// and one that has not changes by shift in each period.
func (r *RoundRobin) Moves(deltas []int64) (shift, limit int64) {
	if shift, limit = r.moved(deltas); shift == 0 {
		return 0, 0
	}
	limit = min(limit, (r.minDistance-1)/shift)
	for i, room := range r.roomMargin {
		if change := max(deltas[len(r.Ranks)+i], -deltas[len(r.Ranks)+i]); change > 0 {
			limit = min(limit, room/change)
		}
	}
	return shift, limit
}

// Skip advances the ranks and the counts by n periods.
func (r *RoundRobin) Skip(n int64, deltas []int64) {
	r.skip(n, deltas)
	for i := range r.Counts {
		r.Counts[i] += n * deltas[len(r.Ranks)+i]
	}
}

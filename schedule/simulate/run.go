package simulate

import (
	"github.com/weir-ml/weir/internal/engine/effects"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
	"github.com/weir-ml/weir/schedule/lengths"
)

// simulation runs a plan in simulated time. It is the visitor of its machine. The order in which the
// ranks run does not matter (Lemma 1 of package passes): an action waits only for messages and receipts
// from other ranks, and its time is a function of their times.
type simulation struct {
	machine   passes.RoundRobin
	plan      *schedule.Plan
	outline   *passes.Outline // of the plan
	costs     *Costs
	capacity  int
	passages  []passage
	transfers bool // the plan has transfers

	actionCosts []actionCost                     // by stage and kind
	buffers     [][effects.NumBufferKinds]buffer // by stage: the buffers of its inputs, outputs, gradients and whole parameters
	holdings    []holding                        // by stage and kind
	crossings   [][]crossing                     // by stage and kind
	kept        [][]buffer                       // by rank: the receive buffers, one for each microbatch, that exist for the whole step
	sizes       []lengths.Size                   // by microbatch; nil if all microbatches have the same costs
	reloaded    [][]repeats.Runs                 // by rank; see level
	copies      []weightCopies                   // by stage: the copies of weights; nil if the plan makes none
	links       passes.Links
	routes      []route // by link
	reducing    []int   // by rank: the lane for reductions

	// The state. If an awaited parcel is not the first in its mailbox, the parcels before it move to
	// overtaken, and remain there until an action takes them.
	ranks      []simRank
	linkStates []simLink // by route, and then by queue
	boxes      []mailbox
	overtaken  map[overtakenKey]parcel

	skips       *skips // nil if every repeat is run
	hiddenState bool   // overtaken, which skips.State does not cover, is or was nonempty in this cycle

	recordsDelays bool      // the simulation records delays, for the critical path
	delays        [][]delay // by rank

	visit  func(TimedAction) // nil unless the caller requested a timeline
	levels []level           // by rank

	nextAudit int64 // the value of Work at which the next audit is due
	fault     error
	maxTime   int64 // the maximum time that Costs.Each may return
}

// simRank is the state of a rank.
type simRank struct {
	cursor               *passes.Cursor
	rank                 int
	clock, previousClock int64 // the current time; if repeats are skipped, also the time at the end of the last period
	busy                 int64 // the time spent in computations so far
	first, last          int64
	final                int64           // the position of the last computation
	waits, counted       [numWaits]int64 // by kind of wait: the total time so far, and the total time up to the last computation
	pair                 schedule.Action // the first action of a joined pair whose second action is next, or 0
	started              bool
}

// simLink is the state of a route, or of a queue of transfers.
type simLink struct {
	freeAt int64 // the time at which the link becomes free
	slots  int   // the number of free slots for messages
	cause  cause // for the critical path: the action whose message began the current busy interval
}

// overtakenKey identifies an overtaken parcel by its mailbox and its key.
type overtakenKey struct {
	box int
	key int64
}

// The limits of a simulation.
const (
	maxSimulated = 1 << 28
	maxParcels   = 1 << 19
	maxOvertaken = 1 << 17
	maxFlat      = 1 << 23 // actions after nested loops have been unrolled
)

// auditEvery is the number of actions between two audits.
const auditEvery = 1 << 16

// run runs all ranks to the ends of their programs.
func (s *simulation) run() error {
	if s.recordsDelays {
		s.delays = make([][]delay, len(s.ranks))
	}
	for s.period() && s.fault == nil {
		if s.skips != nil {
			s.skips.trySkip()
		}
	}
	if s.fault == nil && !s.machine.Done() {
		return s.deadlock()
	}
	return s.fault
}

// period runs the ranks for a period, or for a round if repeats are not skipped. It reports whether
// any rank ran an action.
func (s *simulation) period() (moved bool) {
	if s.skips == nil {
		moved = s.machine.Round(s)
	} else {
		moved = s.machine.Period(s)
	}
	if s.machine.Sets.Work() >= s.nextAudit {
		s.audit()
	}
	return moved
}

// audit checks the limits of the simulation.
func (s *simulation) audit() {
	s.nextAudit = s.machine.Sets.Work() + auditEvery
	if s.machine.Sets.Exhausted || s.parcels() > maxParcels || len(s.overtaken) >= maxOvertaken {
		s.tooLarge()
	}
}

// tooLarge sets the fault for a plan that exceeds the limits.
func (s *simulation) tooLarge() {
	s.fault = &check.Error{Plan: s.plan.Name, Faults: []check.Fault{{Code: check.Unproved, Rank: -1, Position: -1,
		Text: "The plan is too large and too irregular to be simulated; write it in segments whose microbatches ascend or descend without gaps."}}}
}

// parcels returns the number of stored parcels, without progressions.
func (s *simulation) parcels() uint {
	n := uint(len(s.overtaken))
	for i := range s.boxes {
		n += s.boxes[i].tail - s.boxes[i].head
	}
	return n
}

// Step runs the rank's next action. It reports false if the rank must wait or the simulation has a fault.
func (s *simulation) Step(rank int, a schedule.Action) bool {
	if s.fault != nil {
		return false
	}
	r, d := &s.ranks[rank], s.costOf(a)
	if d.op == opCompute {
		if d.awaitBox != 0 && !s.await(r, d, keyOf(a)) {
			return false
		}
		if d.reloadBox != 0 { // a rank takes copies in the order in which it started them
			if p := s.boxes[d.reloadBox].first(); p != nil && !s.later(p.key, keyOf(a)) && !s.later(keyOf(a), p.key) {
				s.takeFirst(r, d.reloadBox, waitCopied)
			}
		}
		for d.gatherBox != 0 && s.boxes[d.gatherBox].first() != nil {
			s.takeFirst(r, d.gatherBox, waitGathered)
		}
		if a.Joined() {
			r.pair = a
			return true
		}
		s.compute(r, rank, a, d)
		return true
	}
	before := r.clock
	var copied Interval
	switch d.op {
	case opCopy:
		s.transmit(r, d, keyOf(a))
		end := s.linkStates[d.link].freeAt
		copied = Interval{end - s.wireOf(d, keyOf(a)), end}
	case opSend:
		if !s.send(r, d, keyOf(a)+d.offset) {
			return false
		}
	case opReceive:
		if !s.receive(r, rank, a, d) {
			return false
		}
	case opPost:
		s.post(r, d, keyOf(a)+d.offset)
	case opAwait:
		if !s.await(r, d, keyOf(a)+d.offset) {
			return false
		}
	}
	if s.visit != nil {
		s.show(rank, r.cursor.Position, before, r.clock, copied, a)
	}
	return true
}

// compute runs a computation, or the joined pair whose second action it is.
func (s *simulation) compute(r *simRank, rank int, a schedule.Action, d *actionCost) {
	start, pair := r.clock, r.pair
	if !r.started {
		r.started, r.first = true, start
	}
	if pair == 0 {
		r.clock += s.timeOf(d, a)
	} else {
		r.clock += s.pairTime(pair, a)
		r.pair = 0
		if first := s.costOf(pair); first.sendBox != 0 {
			s.transmit(r, first, keyOf(pair)+first.offset)
		}
	}
	r.busy += r.clock - start
	r.last, r.final, r.counted = r.clock, r.cursor.Position, r.waits
	if d.sendBox != 0 {
		s.transmit(r, d, keyOf(a)+d.offset)
	}
	if s.visit != nil {
		if pair != 0 {
			s.show(rank, r.cursor.Position-1, start, r.clock, Interval{}, pair, a)
		} else {
			s.show(rank, r.cursor.Position, start, r.clock, Interval{}, a)
		}
	}
}

// await waits for the parcel with the key and takes it. It reports false if find does not find the parcel.
func (s *simulation) await(r *simRank, d *actionCost, key int64) bool {
	if s.find(d.awaitBox, key) == nil {
		return false
	}
	s.takeFirst(r, d.awaitBox, d.waitsFor)
	return true
}

// takeFirst waits for the first parcel in a mailbox and takes it. The wait is counted under its kind unless it
// precedes the rank's first computation.
func (s *simulation) takeFirst(r *simRank, box, kind int) {
	before := r.clock
	s.wait(r, s.boxes[box].first())
	s.boxes[box].take()
	if r.started {
		r.waits[kind] += r.clock - before
	}
}

// find moves the parcel with the key to the front of a mailbox and returns it, or nil if it has not been
// put there or too many parcels are overtaken. Usually it is already the first parcel. Otherwise find
// moves the parcels before it to overtaken, each at most once.
func (s *simulation) find(box int, key int64) *parcel {
	b := &s.boxes[box]
	p := b.first()
	if p != nil && p.key == key {
		return p
	}
	if q, ok := s.overtaken[overtakenKey{box, key}]; ok {
		delete(s.overtaken, overtakenKey{box, key})
		b.putBack(q)
		return b.first()
	}
	for ; p != nil && p.key != key; p = b.first() {
		if len(s.overtaken) == maxOvertaken {
			s.audit()
			return nil
		}
		if s.overtaken == nil {
			s.overtaken = map[overtakenKey]parcel{}
		}
		s.overtaken[overtakenKey{box, p.key}] = *p
		s.hiddenState = true
		b.take()
	}
	return p
}

package simulate

import (
	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/internal/passes"
	"github.com/weir-ml/weir/schedule/internal/repeats"
)

// simulation runs a plan in simulated time. It is the visitor of a machine that advances the ranks
// in turn. The order of the ranks does not matter: an action waits only for messages and receipts
// of other ranks, and its time follows from their times.
type simulation struct {
	passes.RoundRobin
	plan      *schedule.Plan
	costs     *Costs
	capacity  int
	passages  []passage
	transfers bool // the plan has transfers

	actionCosts []actionCost                // by stage and kind
	idle        actionCost                  // the cost of kinds that take no time
	buffers     [][effects.NumPlaces]buffer // by stage: the buffers of its inputs, outputs and gradients
	holdings    []holding                   // by stage and kind
	reloaded    [][]repeats.Runs            // by rank: see level
	copies      []copying                   // of weights, by stage; nil where the plan makes none
	links       passes.Links
	routes      []route // by link
	reducing    []int   // by rank: the lane on which its replicas reduce gradients

	// The state. If an awaited parcel is not the first of its mailbox, the parcels before it move
	// to aside.
	ranks []simRank
	free  []simLink // by route
	boxes []mailbox
	aside map[asideKey]parcel

	skips   *skips // nil if every repeat is run
	unclear bool   // State does not cover the whole configuration

	chains bool      // delays are recorded, for the critical path
	waited [][]delay // by rank

	visit   func(Event) // nil unless a timeline was requested
	visited []level     // by rank

	due     int64 // the amount of work at which the limits are checked next
	fault   error
	longest int64 // the maximum time that Costs.Each may return
}

// simRank is the state of a rank.
type simRank struct {
	*passes.Cursor
	clock, before  int64 // the current time, and the time one period ago if repeats are skipped
	first, last    int64
	final          int64           // the position of the last computation
	waits, counted [numWaits]int64 // the totals, and the parts before the last computation
	pair           schedule.Action // the first action of a joined pair whose second action is next, or 0
	started        bool
}

// simLink is the state of a route.
type simLink struct {
	until     int64 // the time at which the link is free
	room      int   // the number of messages for which the link has room
	by, since int64 // for the critical path: the action since which the link has been busy without a gap, and its end
}

// asideKey is the mailbox and the key of a parcel in aside.
type asideKey struct {
	box int
	key int64
}

// The limits of a simulation.
const (
	maxSimulated = 1 << 28
	maxParcels   = 1 << 19
	maxAside     = 1 << 17
	maxFlat      = 1 << 23 // actions after nested loops are written out
)

// auditEvery is the number of actions between two audits.
const auditEvery = 1 << 16

// run runs all ranks to the end of their programs.
func (s *simulation) run() error {
	if s.chains {
		s.waited = make([][]delay, len(s.ranks))
	}
	for s.period() && s.fault == nil {
		if s.skips != nil {
			s.skips.look()
		}
	}
	if s.fault == nil && !s.Done() {
		return s.stuck()
	}
	return s.fault
}

// period runs the ranks for a period, or for a round if repeats are not skipped. It reports whether
// any rank ran an action.
func (s *simulation) period() (moved bool) {
	if s.skips == nil {
		moved = s.Round(s)
	} else {
		moved = s.Period(s)
	}
	if s.Work() >= s.due {
		s.audit()
	}
	return moved
}

// audit checks the limits of the simulation.
func (s *simulation) audit() {
	s.due = s.Work() + auditEvery
	if s.Exhausted || s.parcels() > maxParcels || len(s.aside) >= maxAside {
		s.tooLarge()
	}
}

// tooLarge sets the fault for a plan that exceeds the limits.
func (s *simulation) tooLarge() {
	s.fault = &check.Error{Plan: s.plan.Name, Faults: []check.Fault{{Code: check.Unproved, Rank: -1, Position: -1,
		Text: "The plan is too large and too irregular to be simulated; write it in segments whose microbatches ascend or descend without gaps."}}}
}

// parcels returns the number of stored parcels, not counting piles.
func (s *simulation) parcels() uint {
	n := uint(len(s.aside))
	for i := range s.boxes {
		n += s.boxes[i].tail - s.boxes[i].head
	}
	return n
}

// Step runs the rank's next action, and reports false if the rank must wait.
func (s *simulation) Step(rank int, a schedule.Action) bool {
	if s.fault != nil {
		return false
	}
	r, d := &s.ranks[rank], s.costOf(a)
	if d.does == doCompute {
		if d.awaits >= 0 && !s.await(r, rank, d, keyOf(a)) {
			return false
		}
		if d.reads >= 0 {
			s.reload(r, rank, d, a)
		}
		if d.gathers >= 0 {
			s.gathered(r, rank, d)
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
	switch d.does {
	case doCopy:
		s.transmit(r, d, keyOf(a))
		end := s.free[d.link].until
		copied = Interval{end - d.wire, end}
	case doSend:
		if !s.enter(r, rank, d, keyOf(a)+d.offset) {
			return false
		}
	case doReceive:
		if !s.receive(r, rank, a, d) {
			return false
		}
	case doPost:
		s.posted(r, d, keyOf(a)+d.offset)
	case doAwait:
		if !s.await(r, rank, d, keyOf(a)+d.offset) {
			return false
		}
		switch {
		case !r.started:
		case a.Kind() == schedule.WaitReduce:
			r.waits[waitReduced] += r.clock - before
		case a.Kind() == schedule.WaitOffload:
			r.waits[waitCopied] += r.clock - before
		}
	}
	if s.visit != nil {
		s.show(rank, a, r.Position, before, r.clock, copied)
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
		if first := s.costOf(pair); first.sends >= 0 {
			s.transmit(r, first, keyOf(pair)+first.offset)
		}
	}
	r.last, r.final, r.counted = r.clock, r.Position, r.waits
	if d.sends >= 0 {
		s.transmit(r, d, keyOf(a)+d.offset)
	}
	if s.visit != nil {
		if pair != 0 {
			s.showPair(rank, pair, a, r.Position, start, r.clock)
		} else {
			s.show(rank, a, r.Position, start, r.clock, Interval{})
		}
	}
}

// await waits for the parcel with the key and takes it. It reports false if the parcel was not sent
// yet.
func (s *simulation) await(r *simRank, rank int, d *actionCost, key int64) bool {
	p := s.find(d.awaits, key)
	if p == nil {
		return false
	}
	s.wait(r, rank, d.peer, p)
	s.boxes[d.awaits].take()
	return true
}

// find moves the parcel with the key to the front of a mailbox and returns it, or nil if the
// mailbox does not have it. Usually it is the first parcel already. Otherwise find moves the
// parcels before it to aside, each at most once.
func (s *simulation) find(box int, key int64) *parcel {
	b := &s.boxes[box]
	p := b.first()
	if p != nil && p.key == key {
		return p
	}
	if q, ok := s.aside[asideKey{box, key}]; ok {
		delete(s.aside, asideKey{box, key})
		b.putBack(q)
		return b.first()
	}
	for ; p != nil && p.key != key; p = b.first() {
		if len(s.aside) == maxAside {
			s.audit()
			return nil
		}
		if s.aside == nil {
			s.aside = map[asideKey]parcel{}
		}
		s.aside[asideKey{box, p.key}] = *p
		s.unclear = true
		b.take()
	}
	return p
}

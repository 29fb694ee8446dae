package simulate

import (
	"github.com/weir-ml/weir/internal/effects"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// simulation is a run of a plan in simulated time. When an action starts does not
// depend on which rank is looked at first: a rank waits only for what others have
// sent or received, never for how far they are. So the ranks are run one by one, each
// some way on, round after round.
type simulation struct {
	plan      *schedule.Plan
	costs     *Costs
	capacity  int
	passages  []passage
	transfers bool // the plan says what is sent

	deeds    []deed                      // by stage and kind
	idle     deed                        // that of the kinds that take no time
	buffers  [][effects.NumPlaces]buffer // by stage: those of what stages hand to each other
	holdings []holding                   // by stage and kind
	copies   []copying                   // of weights, by stage; nil where the plan makes none
	routes   []route

	// The state. A parcel that is in the way of another one is laid aside.
	ranks []simRank
	free  []simLink // by route
	boxes []mailbox
	aside map[asideKey]parcel

	skips   *skips // nil: every repeat is run
	unclear bool   // something happened that the state does not tell

	chains bool      // what each rank waited for is noted
	waited [][]delay // by rank

	visit   func(Event) // nil: nobody looks
	visited []level     // by rank

	work, due int64 // turns and actions run, and how many when the limits are looked at next
	most      int64 // of them
	fault     error
	longest   int64 // that Costs.Each may say
}

// simRank is the state of a rank.
type simRank struct {
	simSpot
	repeat                 int
	position               int64
	clock, before          int64 // now, and a round ago where repeats are skipped
	first, last            int64
	final                  int64           // position of the last computation
	communication, counted int64           // in all, and before the last computation
	pair                   schedule.Action // the first of a joined pair of which the second one is next; 0 for none
	left                   int             // actions that it may still run in this round, where repeats are skipped
	started                bool
}

// simSpot is a place in a program, whichever the repeat.
type simSpot struct {
	segment, index int
	posted         bool // the action there is a send that waits for its receive
}

// simLink is the state of a route.
type simLink struct {
	until     int64 // when the link is free
	room      int   // for more messages
	by, since int64 // where the time of the messages that follow each other on it began
}

// asideKey says where a parcel that is laid aside belongs.
type asideKey struct {
	box int
	key int64
}

// The limits of a simulation: the turns and actions that it runs, those of a plan that says more
// than it writes where repeats are skipped, and the parcels that it holds, and lays aside.
const (
	maxSimulated = 1 << 28
	maxSkipping  = 1 << 22
	maxParcels   = 1 << 19
	maxAside     = 1 << 17
	maxFlat      = 1 << 23 // actions with the bodies of loops of loops written out
)

// auditEvery is after how many turns and actions the limits are looked at.
const auditEvery = 1 << 16

// turnActions is how many actions a rank runs in a turn where it does not run repeats.
const turnActions = 256

// run runs all ranks to their ends.
func (s *simulation) run() error {
	if s.chains {
		s.waited = make([][]delay, len(s.ranks))
	}
	for s.round() {
		if s.skips != nil {
			s.skips.look()
		}
	}
	if s.fault != nil {
		return s.fault
	}
	for rank := range s.ranks {
		if s.ranks[rank].segment < len(s.plan.Programs[rank]) {
			return s.stuck()
		}
	}
	return nil
}

// round lets each rank run some actions, and reports whether any could.
func (s *simulation) round() bool {
	if s.skips == nil {
		return s.pass()
	}
	for rank := range s.ranks {
		s.ranks[rank].left = s.skips.quota(rank)
	}
	moved := s.pass()
	for again := moved; again && s.left(); {
		again = s.pass()
	}
	return moved
}

// left reports whether a rank may run more actions in this round.
func (s *simulation) left() bool {
	for rank := range s.ranks {
		if s.ranks[rank].left > 0 {
			return true
		}
	}
	return false
}

// pass gives each rank two turns, first to last and last to first, as messages flow.
// It reports whether anything was done.
func (s *simulation) pass() bool {
	moved := false
	for rank := range s.ranks {
		moved = s.turn(rank) || moved
	}
	for rank := len(s.ranks) - 1; rank >= 0; rank-- {
		moved = s.turn(rank) || moved
	}
	return moved && s.fault == nil
}

// turn runs actions of a rank until it must wait or its turn is over, and reports
// whether it ran any.
func (s *simulation) turn(rank int) bool {
	r, program := &s.ranks[rank], s.plan.Programs[rank]
	s.work++
	quota := turnActions
	if s.skips != nil {
		quota = r.left
	}
	if r.segment == len(program) || quota == 0 || s.fault != nil {
		return false
	}
	segment := &program[r.segment]
	shift := schedule.Action(r.repeat*segment.Stride) << schedule.MbShift
	n := 0
	for ; n < min(quota, auditEvery); n++ { // and then the limits are looked at
		a := segment.Body[r.index] + shift
		if !s.act(r, rank, a) {
			break
		}
		r.position++
		if r.index++; r.index < len(segment.Body) {
			continue
		}
		r.index = 0
		if r.repeat++; r.repeat < segment.Repeat {
			shift += schedule.Action(segment.Stride) << schedule.MbShift
			continue
		}
		r.repeat = 0
		if r.segment++; r.segment == len(program) || s.skips != nil {
			n, quota = n+1, n+1
			break
		}
		segment, shift = &program[r.segment], 0
	}
	r.left = quota - n
	if s.work += int64(n); s.work >= s.due {
		s.audit()
	}
	return n > 0
}

// audit looks at the limits.
func (s *simulation) audit() {
	s.due = s.work + auditEvery
	if s.work > s.most || s.parcels() > maxParcels || len(s.aside) >= maxAside {
		s.tooLarge()
	}
}

// tooLarge is the fault of a plan that is beyond the limits.
func (s *simulation) tooLarge() {
	s.fault = &check.Error{Plan: s.plan.Name, Faults: []check.Fault{{Code: check.Unproved, Rank: -1, Position: -1,
		Text: "The plan is too large and too irregular to be simulated; write it in segments whose microbatches ascend or descend without gaps."}}}
}

// parcels returns how many parcels there are, but for piles.
func (s *simulation) parcels() uint {
	n := uint(len(s.aside))
	for i := range s.boxes {
		n += s.boxes[i].tail - s.boxes[i].head
	}
	return n
}

// act does the rank's next action, and reports false where it must wait.
func (s *simulation) act(r *simRank, rank int, a schedule.Action) bool {
	d := s.deed(a)
	before := r.clock
	switch d.does {
	case doCompute:
		if d.awaits >= 0 && !s.await(r, rank, d, keyOf(a)) {
			return false
		}
		if a.Joined() {
			r.pair = a
			return true
		}
		s.compute(r, rank, a, d)
		return true
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
	}
	if s.visit != nil {
		s.show(rank, a, r.position, before, r.clock)
	}
	return true
}

// compute runs a computation, or a joined pair of which this is the second one.
func (s *simulation) compute(r *simRank, rank int, a schedule.Action, d *deed) {
	start, pair := r.clock, r.pair
	if !r.started {
		r.started, r.first = true, start
	}
	if pair == 0 {
		r.clock += s.alone(d, a)
	} else {
		r.clock += s.together(pair, a)
		r.pair = 0
		if first := s.deed(pair); first.sends >= 0 {
			s.transmit(r, first, keyOf(pair)+first.offset)
		}
	}
	r.last, r.final, r.counted = r.clock, r.position, r.communication
	if d.sends >= 0 {
		s.transmit(r, d, keyOf(a)+d.offset)
	}
	if s.visit != nil {
		if pair != 0 {
			s.showPair(rank, pair, a, r.position, start, r.clock)
		} else {
			s.show(rank, a, r.position, start, r.clock)
		}
	}
}

// await waits for the parcel with this key, and takes it.
func (s *simulation) await(r *simRank, rank int, d *deed, key int64) bool {
	p := s.find(d.awaits, key)
	if p == nil {
		return false
	}
	s.wait(r, rank, d.peer, p)
	s.boxes[d.awaits].take()
	return true
}

// find makes the parcel with this key the first one of a mailbox and returns it, nil
// where it is not there. Nearly always it is the first one already; what is before it
// is laid aside, so that each parcel is moved once.
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

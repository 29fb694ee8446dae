package schedule

import (
	"fmt"
	"slices"
)

// Check proves a plan without knowing what made it, where a link between two ranks
// holds any number of messages. It is CheckLinks(plan, Unlimited).
func Check(plan *Plan) error { return CheckLinks(plan, Unlimited) }

// CheckLinks proves a plan without knowing what made it, for links that hold so many
// messages: Unlimited, or 0 for rendezvous, where a send and its receive complete
// together. It demands that
//
//   - the actions are exactly those that mode, frozen stages and facts require,
//     each once and on the rank of its stage;
//   - everything an action needs comes before it on its rank, and neither of a joined
//     pair needs the other;
//   - a stage's weights are there where it computes, if the plan gathers them, and its
//     gradients are reduced when they are complete, if the plan reduces any;
//   - what one rank sends to another is received in the same order, and no rank waits
//     for ever;
//   - where the plan has drops: nothing is used after its drop, everything is
//     dropped once, a microbatch retires once on a rank and last, and no more is in
//     flight than Windows, Outgoing and Entries say.
//
// A nil error is a proof for every repeat of every segment. Its cost depends on the
// size of the plan as segments, not on the number of microbatches, wherever
// microbatches are taken in order; where a plan has no such form, every action is
// visited.
//
// The error is a *PlanError, which lists every fault up to a limit and is
// ErrInvalidPlan; with ranks that block each other it is ErrDeadlock as well. What
// would only repeat a fault already found is not looked for.
func CheckLinks(plan *Plan, capacity int) error {
	_, err := Prove(plan, capacity)
	return err
}

// Proof says what a plan was proved by.
type Proof struct {
	Actions int64 // of all ranks, each repeat counted
	// Visited is how many of them were looked at one by one. All others are repeats of
	// these, and proved at once.
	Visited int64
}

// Prove is CheckLinks, and says how much of the plan the proof had to look at. The
// proof means nothing where there is an error.
func Prove(plan *Plan, capacity int) (Proof, error) {
	c := &checker{name: plan.Name}
	c.prove(plan, capacity)
	if c.plan == nil {
		return Proof{}, c.err()
	}
	return Proof{Actions: c.actions(), Visited: c.visited}, c.err()
}

// prove finds what is wrong with a plan.
func (c *checker) prove(plan *Plan, capacity int) {
	c.checkShape(plan)
	if capacity < Unlimited {
		c.plain(Malformed, -1, "A link cannot hold %d messages; give it 0 or more, or %d for any number.", capacity, Unlimited)
	}
	if len(c.faults) > 0 {
		return
	}
	c.outline = newOutline(plan)
	c.permit()
	c.census()
	c.counted = len(c.faults) == 0
	if !c.lost {
		c.order()
		c.sharding()
		c.pairing()
		c.progress(capacity)
		if c.marked {
			c.drops(len(c.faults) == 0)
		}
	}
}

// checker collects faults.
type checker struct {
	outline
	name    string
	allowed []uint32 // by stage: the set of kinds that the plan may have of it
	totals  []runs   // by set: the microbatches that the plan has, from the census
	lost    bool     // actions that belong nowhere: nothing else means anything
	counted bool     // the census has found nothing wrong
	uneven  []bool   // by edge: sends and receives do not come in pairs
	visited int64    // the most actions that a pass has looked at

	faults []Fault
	more   int
	seen   map[faultPlace]struct{}
}

// spot is where an action is in the programs.
type spot struct {
	rank, segment, index int
	position             int64
	action               Action
	mb                   int64 // of the action, which may lie outside of what an Action holds
}

// faultPlace tells faults apart that are not repeats of each other.
type faultPlace struct {
	code                 Code
	rank, segment, index int
	about                string
}

func (c *checker) err() error {
	if len(c.faults) == 0 {
		return nil
	}
	return &PlanError{Plan: c.name, Faults: c.faults, More: c.more}
}

// add adds a fault, in the place of the last one where the list is full and it
// is a deadlock, which must not be lost.
func (c *checker) add(f Fault) {
	switch {
	case len(c.faults) < maxFaults:
		c.faults = append(c.faults, f)
	case f.Code == Deadlock:
		c.faults[maxFaults-1] = f
		c.more++
	default:
		c.more++
	}
}

// plain adds a fault of no action.
func (c *checker) plain(code Code, rank int, format string, args ...any) {
	c.add(Fault{Code: code, Rank: rank, Position: -1, Text: fmt.Sprintf(format, args...)})
}

// at adds a fault of the action at which the walk is.
func (c *checker) at(w *walk, rank int, a Action, mb int64, code Code, about, format string, args ...any) {
	if !w.trial {
		c.fault(spot{rank, w.segment, w.index, w.position, a, mb}, code, about, format, args...)
	}
}

// fault adds a fault of an action. A fault about the same thing that comes back in
// the repeats of a segment is added once.
func (c *checker) fault(s spot, code Code, about, format string, args ...any) {
	place := faultPlace{code, s.rank, s.segment, s.index, about}
	if _, ok := c.seen[place]; ok {
		return
	}
	if c.seen == nil {
		c.seen = map[faultPlace]struct{}{}
	}
	c.seen[place] = struct{}{}
	a := s.action.Shift(int(s.mb) - s.action.Microbatch())
	name := a.String()
	if !a.Kind().ofStage() {
		name = fmt.Sprintf("%d%v%d", a.Stage(), a.Kind(), s.mb)
	}
	text := fmt.Sprintf("Rank %d, action %d: %s ", s.rank, s.position, name)
	c.add(Fault{Code: code, Rank: s.rank, Position: s.position, Action: a, Text: text + fmt.Sprintf(format, args...)})
}

// unproved adds a fault for a walk that was given up, and reports whether it was.
func (c *checker) unproved(w *walk, rank int) bool {
	if w.exhausted {
		c.plain(Unproved, rank, "The program of rank %d is too large and takes its microbatches in too irregular an order to be checked; write it in segments whose microbatches ascend or descend without gaps.", rank)
	}
	return w.exhausted
}

// looked notes how much a pass had to look at.
func (c *checker) looked(w *walk) { c.visited = max(c.visited, w.visited) }

// actions returns the number of actions of all ranks.
func (c *checker) actions() int64 {
	var n int64
	for rank := range c.plan.Programs {
		n += c.plan.Actions(rank)
	}
	return n
}

// find returns where the plan has an action, whatever dies with it.
func (c *checker) find(rank int, want Action) spot {
	start := int64(0)
	for i, s := range c.plan.Programs[rank] {
		for k, a := range s.Body {
			if a.Kind() != want.Kind() || a.Stage() != want.Stage() {
				continue
			}
			moved, repeat := want.Microbatch()-a.Microbatch(), 0
			if s.Stride != 0 {
				repeat = moved / s.Stride
			}
			if repeat >= 0 && repeat < s.Repeat && repeat*s.Stride == moved {
				return spot{rank, i, k, start + int64(repeat)*int64(len(s.Body)) + int64(k), want, int64(want.Microbatch())}
			}
		}
		start += int64(len(s.Body)) * int64(s.Repeat)
	}
	return spot{rank: rank, position: -1, action: want, mb: int64(want.Microbatch())}
}

// checkShape looks at whether the parts of the plan fit together, so that
// everything after it may index them.
func (c *checker) checkShape(plan *Plan) {
	fault := func(format string, args ...any) { c.plain(Malformed, -1, format, args...) }
	stages, ranks := plan.Placement.Stages(), plan.Placement.Ranks
	if stages < 1 || stages > MaxStages {
		fault("The plan has %d stages; there must be 1 to %d.", stages, MaxStages)
	}
	if ranks < 1 || len(plan.Programs) != ranks {
		fault("The plan has %d ranks and %d programs; give every rank a program.", ranks, len(plan.Programs))
	}
	for stage, rank := range plan.Placement.Rank {
		if rank < 0 || rank >= ranks {
			fault("Stage %d is placed on rank %d; place it on one of ranks 0 to %d.", stage, rank, ranks-1)
		}
	}
	if copies := plan.Placement.Copies; copies < 0 || copies > 1 && stages%copies != 0 {
		fault("The placement has %d copies of a model in %d stages; give every copy the same number of stages.", copies, stages)
	}
	if plan.Slices < 0 {
		fault("A sequence has %d slices; it has 1 or more, and 0 stands for 1.", plan.Slices)
	}
	if plan.Microbatches < 1 || plan.Microbatches > MaxMicrobatches {
		fault("The plan has %d microbatches; there must be 1 to %d.", plan.Microbatches, MaxMicrobatches)
	}
	if plan.Mode > ForwardOnly {
		fault("The plan's mode, %d, is none; use Training or ForwardOnly.", plan.Mode)
	}
	if plan.Frozen != nil && len(plan.Frozen) != stages {
		fault("Frozen has %d entries for %d stages; give one for each stage, or nil.", len(plan.Frozen), stages)
	} else if plan.Frozen != nil && plan.Mode == Training && !slices.Contains(plan.Frozen, false) {
		fault("Every stage is frozen, so nothing trains; leave one free, or make the plan forward-only.")
	} else if copies := plan.Placement.Copies; plan.Frozen != nil && copies > 1 && stages%copies == 0 {
		for stage, frozen := range plan.Frozen {
			if first := plan.Placement.within(stage); frozen != plan.Frozen[first] {
				fault("Stage %d is a copy of stage %d, and only one of them is frozen; freeze both or none.", stage, first)
			}
		}
	}
	c.checkTables(plan, fault)
	for rank, program := range plan.Programs {
		for i, s := range program {
			if len(s.Body) == 0 || s.Repeat < 1 || s.Repeat > MaxMicrobatches || s.Stride < -MaxMicrobatches || s.Stride > MaxMicrobatches {
				fault("Segment %d of rank %d has %d actions, repeat %d and stride %d; it must have actions, a repeat of 1 to %d and a stride of at most that.",
					i, rank, len(s.Body), s.Repeat, s.Stride, MaxMicrobatches)
			}
		}
	}
}

// checkTables looks at what the lifetime pass has filled in.
func (c *checker) checkTables(plan *Plan, fault func(string, ...any)) {
	stages, ranks := plan.Placement.Stages(), plan.Placement.Ranks
	for _, table := range []struct {
		name      string
		has       bool
		got, want int
	}{
		{"Facts", plan.Facts != nil, len(plan.Facts), stages},
		{"Parts", plan.Parts != nil, len(plan.Parts), stages},
		{"Windows", plan.Windows != nil, len(plan.Windows), stages},
		{"Outgoing", plan.Outgoing != nil, len(plan.Outgoing), stages},
		{"Entries", plan.Entries != nil, len(plan.Entries), ranks},
	} {
		if table.has && table.got != table.want {
			fault("%s has %d entries where the placement makes it %d; run the lifetime pass again.", table.name, table.got, table.want)
		}
	}
	if plan.Parts != nil && plan.Facts == nil {
		fault("Parts says which entry parts die where, but there are no Facts to say who reads them; give both.")
	}
	if plan.Mode == Training && len(plan.Facts) == stages && (plan.Frozen == nil || len(plan.Frozen) == stages) {
		for stage, facts := range plan.Facts {
			if facts.Frozen != plan.frozen(stage) {
				fault("Stage %d is frozen in one of the plan and its facts and not in the other; give the generator the Frozen of the facts.", stage)
			}
		}
	}
}

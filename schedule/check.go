package schedule

import (
	"fmt"
	"slices"
)

// Check proves a plan without knowing what made it. It demands that
//
//   - the actions are exactly those that mode, frozen stages and facts require,
//     each once and on the rank of its stage;
//   - everything an action needs comes before it, on its rank or on others: what
//     one rank sends to another is received in the same order, and no rank waits
//     for ever, where a link holds any number of messages;
//   - where the plan has drops: nothing is used after its drop, everything is
//     dropped once, a microbatch retires once on a rank and last, and no more is in
//     flight than Windows and Entries say.
//
// A nil error is a proof for every repeat of every segment. On one rank its cost
// depends on the size of the plan as segments, not on the number of microbatches,
// wherever microbatches are taken in order. On several ranks, and where a plan has
// no such form, every action is visited.
//
// The error is a *PlanError, which lists every fault up to a limit and is
// ErrInvalidPlan; with ranks that block each other it is ErrDeadlock as well. What
// would only repeat a fault already found is not looked for.
func Check(plan *Plan) error {
	c := &checker{name: plan.Name}
	c.checkShape(plan)
	if len(c.faults) > 0 {
		return c.err()
	}
	c.outline = newOutline(plan)
	c.census()
	counted := len(c.faults) == 0
	if counted || plan.Placement.Ranks == 1 && !c.lost {
		c.order()
		if c.marked {
			c.drops(len(c.faults) == 0)
		}
	}
	return c.err()
}

// checker collects faults.
type checker struct {
	outline
	name   string
	totals []runs // by set: the microbatches that the plan has, from the census
	lost   bool   // actions that belong nowhere: order and drops mean nothing

	faults []Fault
	more   int
	seen   map[faultPlace]struct{}
}

// faultPlace tells faults apart that are not repeats of each other.
type faultPlace struct {
	code                 Code
	rank, segment, index int
	text                 string
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

// at adds a fault of the action at which the walk is. A fault that comes back in
// the repeats of a segment is added once.
func (c *checker) at(w *walk, rank int, a Action, mb int64, code Code, about, format string, args ...any) {
	if w.trial {
		return
	}
	place := faultPlace{code, rank, w.segment, w.index, about}
	if _, ok := c.seen[place]; ok {
		return
	}
	if c.seen == nil {
		c.seen = map[faultPlace]struct{}{}
	}
	c.seen[place] = struct{}{}
	a = a.Shift(int(mb) - a.Microbatch())
	text := fmt.Sprintf("Rank %d, action %d: %d%v%d ", rank, w.position, a.Stage(), a.Kind(), mb)
	c.add(Fault{Code: code, Rank: rank, Position: w.position, Action: a, Text: text + fmt.Sprintf(format, args...)})
}

// unproved adds a fault for a walk that was given up, and reports whether it was.
func (c *checker) unproved(w *walk, rank int) bool {
	if w.exhausted {
		c.plain(Unproved, rank, "The program of rank %d is too large and takes its microbatches in too irregular an order to be checked; write it in segments whose microbatches ascend or descend without gaps.", rank)
	}
	return w.exhausted
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

package schedule

import (
	"errors"
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// ErrParams is wrapped by every error about the parameters of a plan.
var ErrParams = errors.New("schedule: invalid parameters")

// Params are the parameters of a rule. The zero value is not valid, because a plan has at least one
// stage and one microbatch.
type Params struct {
	Placement    Placement
	Microbatches int
	// Group is the number of microbatches that run breadth first together. 0 means 1 for
	// DepthFirst, which has groups only on a single rank, and the number of ranks for Interleaved,
	// ZB1P and GroupedInterleave. Other rules have no groups.
	Group int
	// Cap limits the microbatches in flight: a rank with n stages has at most n·Cap microbatches in flight, counting
	// each stage separately. 0 means the rule's default. Only ZBH2, and DepthFirst on several ranks, accept a Cap.
	Cap int
	// Slices is Plan.Slices; 0 means 1. Only Seq1F1B accepts more than 1.
	Slices int
	Mode   Mode
	// Frozen[stage] reports whether the stage has no weight gradients; nil means that no stage is
	// frozen. A forward-only plan ignores it.
	Frozen []bool
}

// A Rule generates the computations of a plan, without drops. It rejects parameters that it does not
// support, such as a Group, Cap, Slices or placement. In a forward-only plan, the forwards have the
// same order as in training.
type Rule func(Params) (*Plan, error)

// Validate checks every field and returns the faults as joined errors, each of which wraps ErrParams. If
// several stages have the same fault, it reports the first of them.
func (p Params) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, diagnostic.Errorf(ErrParams, format, args...))
	}
	stages := p.Placement.Stages()
	if stages < 1 || stages > MaxStages {
		fault("%d stages: there must be 1 to %d", stages, MaxStages)
	}
	if p.Placement.Ranks < 1 || p.Placement.Ranks > MaxStages {
		fault("%d ranks: there must be 1 to %d", p.Placement.Ranks, MaxStages)
	}
	for stage, rank := range p.Placement.Rank {
		if p.Placement.Ranks >= 1 && (rank < 0 || rank >= p.Placement.Ranks) {
			fault("stage %d is on rank %d: ranks are 0 to %d", stage, rank, p.Placement.Ranks-1)
			break
		}
	}
	if p.Microbatches < 1 || p.Microbatches > MaxMicrobatches {
		fault("%d microbatches: there must be 1 to %d", p.Microbatches, MaxMicrobatches)
	}
	if p.Group < 0 {
		fault("group %d: it must be 1 or more, or 0 for the rule's default", p.Group)
	}
	if p.Cap < 0 {
		fault("cap %d: it must be 1 or more, or 0 for the rule's default", p.Cap)
	}
	if p.Slices < 0 || p.Slices > MaxMicrobatches {
		fault("%d slices: there must be 1 to %d, or 0 for 1", p.Slices, MaxMicrobatches)
	}
	copies := p.Placement.Copies
	if copies < 0 || copies > 1 && stages%copies != 0 {
		fault("%d copies of a model in %d stages: every copy has the same number of stages", copies, stages)
	}
	if p.Mode > ForwardOnly {
		fault("unknown mode %d: use Training or ForwardOnly", p.Mode)
	}
	if p.Frozen != nil && len(p.Frozen) != stages {
		fault("frozen has %d entries for %d stages: give one for each stage, or nil", len(p.Frozen), stages)
	} else if p.Mode == Training && stages > 0 && firstTrained(p.Frozen) == stages && p.Frozen != nil {
		fault("every stage is frozen, so nothing trains: leave one trainable, or make a forward-only plan")
	} else if p.Frozen != nil && copies > 1 && stages%copies == 0 {
		for stage, frozen := range p.Frozen {
			if first := stage % (stages / copies); frozen != p.Frozen[first] {
				fault("stage %d is a copy of stage %d, and only one of them is frozen: freeze both or neither", stage, first)
				break
			}
		}
	}
	return errors.Join(faults...)
}

// UnusedError reports a Group, Cap or Slices that a rule does not support. It wraps ErrParams.
type UnusedError struct {
	Rule   string
	Reason string // completes a sentence that begins with Rule, such as "has no groups"
	Field  string // the name of the field of Params
	Value  int
	Advice string // an alternative to leaving the field at 0, or ""
}

// Error returns a message that names the field to leave at 0.
func (e *UnusedError) Error() string { return e.Unwrap().Error() }

// Unwrap returns an error that wraps ErrParams and has the same message.
func (e *UnusedError) Unwrap() error {
	return diagnostic.Errorf(ErrParams, "%s %s: make %s 0, not %d%s", e.Rule, e.Reason, e.Field, e.Value, e.Advice)
}

// option is a parameter that only some rules support.
type option uint8

const (
	takesGroup option = 1 << iota
	takesCap
	takesSlices
	takesCopies
)

// check validates the parameters for a rule that supports only the options in takes.
func (p Params) check(rule string, takes option) error {
	faults := []error{p.Validate()}
	if takes&takesGroup == 0 && p.Group > 1 {
		faults = append(faults, &UnusedError{rule, "has no groups", "Group", p.Group, ""})
	}
	if takes&takesCap == 0 && p.Cap > 0 {
		faults = append(faults, &UnusedError{rule, "has a bound of its own in flight", "Cap", p.Cap, ""})
	}
	if takes&takesSlices == 0 && p.Slices > 1 {
		faults = append(faults, &UnusedError{rule, "does not slice sequences", "Slices", p.Slices, ", or use seq1f1b"})
	}
	if copies := p.Placement.Copies; takes&takesCopies == 0 && copies > 1 {
		faults = append(faults, diagnostic.Errorf(ErrParams, "%s runs one copy of the model, and the placement has %d: use dualpipe for two", rule, copies))
	}
	return errors.Join(faults...)
}

// plan returns a plan with the given programs, one for each rank. If the mode or frozen stages exclude
// actions, it calls kept to remove them, so that a rule may assume that all stages train.
func (p Params) plan(name string, programs ...[]Segment) *Plan {
	plan := &Plan{Name: name, Mode: p.Mode, Placement: p.Placement, Microbatches: p.Microbatches, Programs: programs}
	plan.Placement.Rank = slices.Clone(p.Placement.Rank)
	if slices.Contains(p.Frozen, true) {
		plan.Frozen = slices.Clone(p.Frozen)
	}
	if p.Mode == ForwardOnly || plan.Frozen != nil {
		plan.Programs = make([][]Segment, len(programs))
		for rank, program := range programs {
			plan.Programs[rank] = plan.kept(program)
		}
	}
	return plan
}

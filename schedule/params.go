package schedule

import (
	"errors"
	"fmt"
	"slices"
)

// ErrParams is wrapped by every error about the parameters of a plan.
var ErrParams = errors.New("schedule: invalid parameters")

// Params are what a generator makes a plan from. The zero value is not valid: a
// plan has at least one stage and one microbatch.
type Params struct {
	Placement    Placement
	Microbatches int
	// Group is the number of microbatches that run breadth first within a
	// depth-first plan; 0 means 1. Only DepthFirst has groups.
	Group int
	Mode  Mode
	// Frozen says by stage which stages have no weight gradients; nil is none. It
	// means nothing in a forward-only plan.
	Frozen []bool
}

// A Rule generates the compute actions of a plan, without drops.
type Rule func(Params) (*Plan, error)

// Validate reports every fault of the parameters at once. Each of the joined
// errors wraps ErrParams.
func (p Params) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrParams}, args...)...))
	}
	stages := p.Placement.Stages()
	if stages < 1 || stages > MaxStages {
		fault("%d stages: there must be 1 to %d", stages, MaxStages)
	}
	if p.Placement.Ranks < 1 {
		fault("%d ranks: there must be at least 1", p.Placement.Ranks)
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
		fault("group %d: it must be 1 or more, or 0 for 1", p.Group)
	}
	if p.Mode > ForwardOnly {
		fault("mode %d is none: use Training or ForwardOnly", p.Mode)
	}
	if p.Frozen != nil && len(p.Frozen) != stages {
		fault("frozen has %d entries for %d stages: give one for each stage, or nil", len(p.Frozen), stages)
	} else if p.Mode == Training && stages > 0 && firstTrained(p.Frozen) == stages && p.Frozen != nil {
		fault("every stage is frozen, so nothing trains: leave one free, or make a forward-only plan")
	}
	return errors.Join(faults...)
}

// oneRank validates the parameters for a rule that has no order for several ranks.
func (p Params) oneRank(rule string) error {
	err := p.Validate()
	if p.Placement.Ranks > 1 {
		err = errors.Join(err, fmt.Errorf("%w: %s has no rule for %d ranks yet: place every stage on one rank",
			ErrParams, rule, p.Placement.Ranks))
	}
	return err
}

// backward returns the kind of backward of a stage that has one: a frozen stage
// only hands the gradient on to those before it.
func (p Params) backward(stage int) Kind {
	if p.Frozen != nil && p.Frozen[stage] {
		return I
	}
	return B
}

// firstBackward returns the lowest stage that has a backward, the number of
// stages where none has.
func (p Params) firstBackward() int {
	if p.Mode != Training {
		return p.Placement.Stages()
	}
	return firstTrained(p.Frozen)
}

// plan returns the plan that these programs make, one for each rank.
func (p Params) plan(name string, programs ...[]Segment) *Plan {
	plan := &Plan{Name: name, Mode: p.Mode, Placement: p.Placement, Microbatches: p.Microbatches, Programs: programs}
	plan.Placement.Rank = slices.Clone(p.Placement.Rank)
	if slices.Contains(p.Frozen, true) {
		plan.Frozen = slices.Clone(p.Frozen)
	}
	return plan
}

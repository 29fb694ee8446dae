package check

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// CheckShape checks that the fields of the plan have consistent sizes, so that later checks can index
// them safely.
func (c *Checker) CheckShape(plan *schedule.Plan) {
	fault := func(format string, args ...any) { c.planFault(Malformed, -1, format, args...) }
	stages, ranks := plan.Placement.Stages(), plan.Placement.Ranks
	if stages < 1 || stages > schedule.MaxStages {
		fault("The plan has %d stages; there must be 1 to %d.", stages, schedule.MaxStages)
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
		fault("A sequence has %d slices; use 1 or more, or 0 for 1.", plan.Slices)
	}
	if plan.Microbatches < 1 || plan.Microbatches > schedule.MaxMicrobatches {
		fault("The plan has %d microbatches; there must be 1 to %d.", plan.Microbatches, schedule.MaxMicrobatches)
	}
	if plan.Mode > schedule.ForwardOnly {
		fault("The plan has unknown mode %d; use Training or ForwardOnly.", plan.Mode)
	}
	if plan.Frozen != nil && len(plan.Frozen) != stages {
		fault("Frozen has %d entries for %d stages; give one for each stage, or nil.", len(plan.Frozen), stages)
	} else if plan.Frozen != nil && plan.Mode == schedule.Training && !slices.Contains(plan.Frozen, false) {
		fault("Every stage is frozen, so nothing trains; leave one trainable, or make the plan forward-only.")
	} else if copies := plan.Placement.Copies; plan.Frozen != nil && copies > 1 && stages%copies == 0 {
		for stage, frozen := range plan.Frozen {
			if first := stage % plan.Placement.Depth(); frozen != plan.Frozen[first] {
				fault("Stage %d is a copy of stage %d, and only one of them is frozen; freeze both or neither.", stage, first)
			}
		}
	}
	c.checkTables(plan, fault)
	nested := int64(0)
	for rank, program := range plan.Programs {
		for i, s := range program {
			bad := func(s *schedule.Segment) bool {
				return len(s.Body)+len(s.Inner) == 0 || len(s.Body) > 0 && s.Inner != nil || s.Repeat < 1 || s.Repeat > schedule.MaxMicrobatches || s.Stride < -schedule.MaxMicrobatches || s.Stride > schedule.MaxMicrobatches
			}
			if bad(&s) {
				fault("Segment %d of rank %d has %d actions, repeat %d and stride %d; it must have actions, a repeat of 1 to %[6]d and a stride of -%[6]d to %[6]d.",
					i, rank, len(s.Body), s.Repeat, s.Stride, schedule.MaxMicrobatches)
			}
			for k := range s.Inner {
				inner := &s.Inner[k]
				if bad(inner) || inner.Inner != nil || len(inner.Body) > schedule.MaxNested {
					fault("Segment %d of rank %d contains segment %d of %d actions, repeat %d and stride %d; it must have actions, no segments, a repeat of 1 to %[7]d and a stride of -%[7]d to %[7]d.",
						i, rank, k, len(inner.Body), inner.Repeat, inner.Stride, schedule.MaxMicrobatches)
				} else if nested += int64(len(inner.Body)) * int64(inner.Repeat); nested > schedule.MaxNested {
					fault("Segment %d of rank %d is a nested loop that brings the actions of one repeat of all nested loops to %d; the limit is %d.", i, rank, nested, schedule.MaxNested)
					return
				}
			}
		}
	}
}

// checkTables checks the sizes of the tables that the lifetime pass fills in.
func (c *Checker) checkTables(plan *schedule.Plan, fault func(string, ...any)) {
	for _, wrong := range plan.LengthMismatches() {
		if wrong.Table != "Programs" && wrong.Table != "Frozen" { // CheckShape reports these
			fault("%s has %d entries but the placement requires %d; run the lifetime pass again.", wrong.Table, wrong.Len, wrong.Want)
		}
	}
	stages := plan.Placement.Stages()
	if plan.Parts != nil && plan.StageInfo == nil {
		fault("Parts lists the entry parts that actions drop, but there are no Facts to list their readers; give both.")
	}
	if plan.Mode == schedule.Training && len(plan.StageInfo) == stages && (plan.Frozen == nil || len(plan.Frozen) == stages) {
		for stage, facts := range plan.StageInfo {
			if facts.Frozen != plan.IsFrozen(stage) {
				fault("Stage %d is frozen in only one of the plan and its facts; give the generator the same Frozen as the facts.", stage)
			}
		}
	}
}

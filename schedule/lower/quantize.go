package lower

import (
	"fmt"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// Quantizing selects when a rank makes the copies of its stages' weights.
type Quantizing uint8

const (
	// BeforeUse makes the copies of a stage immediately before its first forward, so that they live
	// no longer than necessary.
	BeforeUse Quantizing = iota
	// AtStart makes the copies of all stages of a rank at the beginning, while the first microbatch
	// is in flight, or after the first UNSHARD of a stage whose weights are sharded. The copies live
	// longer, but no later action waits for them.
	AtStart
)

// String returns "before-use", "at-start", or a text with the number of an unknown value.
func (q Quantizing) String() string {
	switch q {
	case BeforeUse:
		return "before-use"
	case AtStart:
		return "at-start"
	}
	return fmt.Sprintf("quantizing(%d)", uint8(q))
}

// Quantize returns a plan that makes the copies of weights with which stages compute, once in a step.
// It adds a QUANTIZE for each stage whose facts require one, unless the plan already has one. If the
// stage's first forward is in a joined pair, QUANTIZE comes before the pair. If the stage's weights
// are sharded, AtStart puts QUANTIZE after the stage's first UNSHARD.
//
// Run Quantize after Shard and before Transfers, so that a rank makes its copies before it receives.
// The result has no drops; [Lifetimes] determines when the copies end. If the plan is invalid,
// Quantize returns the error of [check.Plan]. If the length of facts is not the number of stages,
// the error wraps ErrStageInfo; if point is unknown, it wraps ErrParams. The cost depends on the size of
// the plan's segments, as for [check.Plan].
func Quantize(plan *schedule.Plan, facts []schedule.StageInfo, point Quantizing) (*schedule.Plan, error) {
	if len(facts) != plan.Placement.Stages() {
		return nil, diagnostic.Errorf(schedule.ErrStageInfo, "there are facts for %d stages, but the plan has %d stages", len(facts), plan.Placement.Stages())
	}
	if err := check.Plan(withoutDrops(plan)); err != nil {
		return nil, err
	}
	return quantize(plan, facts, point)
}

// quantize adds the copies that facts require to a valid plan.
func quantize(plan *schedule.Plan, facts []schedule.StageInfo, point Quantizing) (*schedule.Plan, error) {
	if point > AtStart {
		return nil, diagnostic.Errorf(schedule.ErrParams, "unknown Quantizing %v: use %v or %v", point, BeforeUse, AtStart)
	}
	quantized := withoutDrops(plan).Flat()
	q := quantizer{point: point, pending: make([]bool, len(facts)), sharded: make([]bool, len(facts))}
	for stage := range facts {
		q.pending[stage] = facts[stage].Quantizes
	}
	for _, program := range quantized.Programs {
		for _, s := range program {
			for _, a := range s.Body {
				switch a.Kind() {
				case schedule.Quantize:
					q.pending[a.Stage()] = false
				case schedule.Unshard:
					q.sharded[a.Stage()] = true
				}
			}
		}
	}
	for rank, program := range quantized.Programs {
		quantized.Programs[rank] = q.program(program)
	}
	return quantized, nil
}

// quantizer inserts QUANTIZE into programs.
type quantizer struct {
	point   Quantizing
	pending []bool // by stage: a QUANTIZE is needed but not written yet
	sharded []bool // by stage: the plan gathers its weights
}

// program returns the program of a rank with a QUANTIZE for each of its stages that needs one, in the
// order in which the rank first computes them.
func (q *quantizer) program(program []schedule.Segment) []schedule.Segment {
	var list []schedule.Segment
	if q.point == AtStart {
		var start []schedule.Action
		for _, s := range program {
			for _, a := range s.Body {
				if a.Kind() == schedule.F && !q.sharded[a.Stage()] {
					start = q.quantize(start, a)
				}
			}
		}
		if len(start) > 0 {
			list = append(list, schedule.Segment{Body: start, Repeat: 1})
		}
	}
	return append(list, firstRepeats(program, q.body)...)
}

// body returns the actions with a QUANTIZE for each stage whose first forward is among them. With
// AtStart, it adds a stage's QUANTIZE after the stage's first UNSHARD.
func (q *quantizer) body(body []schedule.Action) []schedule.Action {
	list := make([]schedule.Action, 0, len(body))
	for i, a := range body {
		if a.Kind() == schedule.F {
			list = q.quantize(list, a)
		}
		if a.Joined() && body[i+1].Kind() == schedule.F {
			list = q.quantize(list, body[i+1])
		}
		list = append(list, a)
		if a.Kind() == schedule.Unshard && q.point == AtStart {
			list = q.quantize(list, a)
		}
	}
	return list
}

// quantize appends the QUANTIZE for an action's stage if it is pending.
func (q *quantizer) quantize(list []schedule.Action, a schedule.Action) []schedule.Action {
	if !q.pending[a.Stage()] {
		return list
	}
	q.pending[a.Stage()] = false
	return append(list, schedule.NewAction(schedule.Quantize, a.Stage(), 0))
}

package lower

import (
	"fmt"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
)

// Quantizing says where a rank makes the copies of its stages' weights.
type Quantizing uint8

const (
	// BeforeUse makes the copies of a stage right before its first forward, so that they live no
	// longer than necessary.
	BeforeUse Quantizing = iota
	// AtStart makes the copies of all stages of a rank before anything else, while the first
	// microbatch is on its way: they live longer, and no later action waits for them.
	AtStart
)

// String returns the words before-use and at-start.
func (q Quantizing) String() string {
	switch q {
	case BeforeUse:
		return "before-use"
	case AtStart:
		return "at-start"
	}
	return fmt.Sprintf("quantizing(%d)", uint8(q))
}

// Quantize returns a plan that makes the copies of weights on which stages compute,
// once in a step (QUANTIZE): for each stage whose facts ask for it, unless the plan has a
// QUANTIZE of the stage. It comes before a joined pair whose forward is the stage's first one.
// AtStart puts it after the first UNSHARD of a stage whose weights are sharded.
//
// Transfers comes after this pass, so that a rank makes copies and then receives, and Shard
// before it. Drops that the plan had are forgotten: [Lifetimes] decides where the copies
// end. The plan must be valid, or else Quantize returns the error of Check. There is one entry of
// facts for each stage; another number is ErrFacts. The cost depends on the size of the plan as
// segments, like Check's.
func Quantize(plan *schedule.Plan, facts []schedule.Facts, where Quantizing) (*schedule.Plan, error) {
	if len(facts) != plan.Placement.Stages() {
		return nil, fmt.Errorf("%w: there are facts of %d stages for a plan of %d", schedule.ErrFacts, len(facts), plan.Placement.Stages())
	}
	if err := check.Plan(withoutDrops(plan)); err != nil {
		return nil, err
	}
	return quantize(plan, facts, where)
}

// quantize returns the valid plan with the copies that facts ask for.
func quantize(plan *schedule.Plan, facts []schedule.Facts, where Quantizing) (*schedule.Plan, error) {
	if where > AtStart {
		return nil, fmt.Errorf("%w: weights cannot be quantized %v: choose %v or %v", schedule.ErrParams, where, BeforeUse, AtStart)
	}
	quantized := withoutDrops(plan).Flat()
	q := quantizing{where: where, awaited: make([]bool, len(facts)), sharded: make([]bool, len(facts))}
	for stage := range facts {
		q.awaited[stage] = facts[stage].Quantizes
	}
	for _, program := range quantized.Programs {
		for _, s := range program {
			for _, a := range s.Body {
				switch a.Kind() {
				case schedule.Quantize:
					q.awaited[a.Stage()] = false
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

// quantizing puts QUANTIZE into programs.
type quantizing struct {
	where   Quantizing
	awaited []bool // by stage: the plan needs one, and has none yet
	sharded []bool // by stage: the plan gathers its weights
}

// program returns the program of a rank with its stages' QUANTIZE, in the order in which
// it first computes them.
func (q *quantizing) program(program []schedule.Segment) []schedule.Segment {
	var list []schedule.Segment
	if q.where == AtStart {
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
	for _, s := range program {
		first, rest := cut(s, 1)
		if body := q.body(first[0].Body); len(body) > len(s.Body) {
			list = append(append(list, schedule.Segment{Body: body, Repeat: 1}), rest...)
		} else {
			list = append(list, s)
		}
	}
	return list
}

// body returns the actions with the QUANTIZE of each stage whose first forward, or at the start
// first UNSHARD, is among them.
func (q *quantizing) body(body []schedule.Action) []schedule.Action {
	list := make([]schedule.Action, 0, len(body))
	for i, a := range body {
		if a.Kind() == schedule.F {
			list = q.quantize(list, a)
		}
		if a.Joined() && body[i+1].Kind() == schedule.F {
			list = q.quantize(list, body[i+1])
		}
		list = append(list, a)
		if a.Kind() == schedule.Unshard && q.where == AtStart {
			list = q.quantize(list, a)
		}
	}
	return list
}

// quantize appends the QUANTIZE of an action's stage if it is awaited.
func (q *quantizing) quantize(list []schedule.Action, a schedule.Action) []schedule.Action {
	if !q.awaited[a.Stage()] {
		return list
	}
	q.awaited[a.Stage()] = false
	return append(list, schedule.Act(schedule.Quantize, a.Stage(), 0))
}

package schedule

import "fmt"

// BreadthFirst runs the forward of all microbatches stage by stage, ascending,
// and then the backward of all of them stage by stage, descending. Microbatches
// ascend in both. Every microbatch is in flight at once, which is what it costs;
// each stage's weights are needed in two stretches only, which is what it buys.
//
// All stages are on one rank and Group must be 0 or 1. The size of the plan does
// not depend on the number of microbatches. Errors wrap ErrParams.
func BreadthFirst(p Params) (*Plan, error) {
	if err := p.oneRank("breadth-first"); err != nil {
		return nil, err
	}
	if p.Group > 1 {
		return nil, fmt.Errorf("%w: breadth-first has no groups: leave Group at 0, or use depth-first with group %d", ErrParams, p.Group)
	}
	return p.plan("breadth-first", breadthFirst(p)), nil
}

// breadthFirst returns the program, a segment for each stage and direction.
func breadthFirst(p Params) []Segment {
	stages := p.Placement.Stages()
	all := func(kind Kind, stage int) Segment {
		return Segment{Body: []Action{Act(kind, stage, 0)}, Repeat: p.Microbatches, Stride: 1}
	}
	program := make([]Segment, 0, 2*stages-p.firstBackward())
	for stage := range stages {
		program = append(program, all(F, stage))
	}
	for stage := stages - 1; stage >= p.firstBackward(); stage-- {
		program = append(program, all(p.backward(stage), stage))
	}
	return program
}

package schedule

import "fmt"

// maxBody bounds the actions of one body: a group of many microbatches is
// written out in full.
const maxBody = 1 << 24

// DepthFirst takes every microbatch through all stages, forward and back, before
// it starts the next one, so that what is in flight does not depend on how many
// there are. With groups it does so for Group microbatches at once: stages
// ascending, the forward of the whole group; stages descending, its backward. A
// last, smaller group takes the rest where Group does not divide Microbatches.
//
// All stages are on one rank. The size of the plan depends on stages and group,
// not on the number of microbatches. Errors wrap ErrParams.
func DepthFirst(p Params) (*Plan, error) {
	if err := p.oneRank("depth-first"); err != nil {
		return nil, err
	}
	group := min(max(p.Group, 1), p.Microbatches)
	name := "depth-first"
	if group > 1 {
		name = fmt.Sprintf("depth-first group=%d", group)
	}
	if group == p.Microbatches && group > 1 {
		return p.plan(name, breadthFirst(p)), nil // one group of all is breadth-first
	}
	if int64(group)*int64(p.Placement.Stages()) > maxBody/2 {
		return nil, fmt.Errorf("%w: a group of %d microbatches over %d stages is more than %d actions: use a smaller group",
			ErrParams, group, p.Placement.Stages(), maxBody)
	}

	groups, rest := p.Microbatches/group, p.Microbatches%group
	program := []Segment{{Body: oneGroup(p, 0, group), Repeat: groups, Stride: group}}
	if rest > 0 {
		program = append(program, Segment{Body: oneGroup(p, groups*group, rest), Repeat: 1})
	}
	return p.plan(name, program), nil
}

// oneGroup returns the actions of n microbatches from the first one on, as one
// group.
func oneGroup(p Params, first, n int) []Action {
	stages := p.Placement.Stages()
	body := make([]Action, 0, (2*stages-p.firstBackward())*n)
	for stage := range stages {
		for mb := first; mb < first+n; mb++ {
			body = append(body, Act(F, stage, mb))
		}
	}
	for stage := stages - 1; stage >= p.firstBackward(); stage-- {
		for mb := first; mb < first+n; mb++ {
			body = append(body, Act(p.backward(stage), stage, mb))
		}
	}
	return body
}

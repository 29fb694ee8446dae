package schedule

import "slices"

// BreadthFirst runs the forward of all microbatches stage by stage in ascending order, and then
// their backward stage by stage in descending order. Microbatches ascend in both. All microbatches
// are in flight at once; in return, the weights of each stage are needed in two intervals only.
//
// Any placement of one copy of the model works. With V stages per rank, looped, and times F and B of
// a rank, the makespan has a bubble of (P-1)(F+B)/V. The size of the plan does not depend on the
// number of microbatches. Errors wrap ErrParams.
func BreadthFirst(p Params) (*Plan, error) {
	if err := p.check("breadth-first", 0); err != nil {
		return nil, err
	}
	return p.plan("breadth-first", breadthFirst(p, 0, 1)...), nil
}

// BreadthFirstDescending is BreadthFirst with the microbatches of the backward
// descending, as in PyTorch's LoopedBFS: the last microbatch to be computed is freed first.
// Gradients are added in a different order than in ascending plans (L9).
func BreadthFirstDescending(p Params) (*Plan, error) {
	if err := p.check("breadth-first descending", 0); err != nil {
		return nil, err
	}
	return p.plan("breadth-first descending", breadthFirst(p, p.Microbatches-1, -1)...), nil
}

// breadthFirst returns the programs, with one segment for each stage and direction. The backward
// starts with the given microbatch and continues with the stride.
func breadthFirst(p Params, first, stride int) [][]Segment {
	programs := make([][]Segment, p.Placement.Ranks)
	all := func(kind Kind, stage, first, stride int) {
		rank := p.Placement.Rank[stage]
		programs[rank] = append(programs[rank], Segment{Body: []Action{Act(kind, stage, first)}, Repeat: p.Microbatches, Stride: stride})
	}
	for stage := range p.Placement.Rank {
		all(F, stage, 0, 1)
	}
	for stage := range slices.Backward(p.Placement.Rank) {
		all(B, stage, first, stride)
	}
	return programs
}

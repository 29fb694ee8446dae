package schedule

import "slices"

// BreadthFirst runs the forwards of all microbatches stage by stage in ascending order, and then
// their backwards stage by stage in descending order. Microbatches ascend in both. All microbatches are in flight at
// the same time; in return, the weights of each stage are needed in only two intervals.
//
// Any placement of one copy of the model works. If V stages per rank are looped and a rank spends
// times F and B on a microbatch, the makespan has a bubble of (P-1)(F+B)/V. The size of the plan does
// not depend on the number of microbatches. Errors wrap ErrParams.
func BreadthFirst(p Params) (*Plan, error) {
	if err := p.check("breadth-first", 0); err != nil {
		return nil, err
	}
	return p.plan("breadth-first", breadthFirst(p, 0, 1)...), nil
}

// BreadthFirstDescending is like BreadthFirst, but the microbatches of the backward descend, as in
// PyTorch's LoopedBFS, so that the last microbatch to be computed is freed first. Gradients are added
// in a different order than in ascending plans (L9).
func BreadthFirstDescending(p Params) (*Plan, error) {
	if err := p.check("breadth-first descending", 0); err != nil {
		return nil, err
	}
	return p.plan("breadth-first descending", breadthFirst(p, p.Microbatches-1, -1)...), nil
}

// breadthFirst returns the programs, with one segment for each stage and direction. The backward of each
// stage starts with microbatch first and continues with the stride.
func breadthFirst(p Params, first, stride int) [][]Segment {
	programs := make([][]Segment, p.Placement.Ranks)
	all := func(kind Kind, stage, first, stride int) {
		rank := p.Placement.Rank[stage]
		programs[rank] = append(programs[rank], Segment{Body: []Action{NewAction(kind, stage, first)}, Repeat: p.Microbatches, Stride: stride})
	}
	for stage := range p.Placement.Rank {
		all(F, stage, 0, 1)
	}
	for stage := range slices.Backward(p.Placement.Rank) {
		all(B, stage, first, stride)
	}
	return programs
}

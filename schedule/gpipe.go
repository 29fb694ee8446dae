package schedule

import "slices"

// GPipe runs the forwards of all microbatches and then their backwards, both in ascending order. If
// consecutive stages are on one rank, a microbatch runs through all of them in a row.
//
// All microbatches are in flight at the same time on every rank. If each rank has consecutive stages and spends times
// F and B on a microbatch, the makespan has a bubble of (P-1)(F+B). Any placement of one copy of the model works. The
// size of the plan does not depend on the number of microbatches. Errors wrap ErrParams.
func GPipe(p Params) (*Plan, error) {
	if err := p.check("gpipe", 0); err != nil {
		return nil, err
	}
	return p.counted("gpipe", func(b *countingBuilder, _ int) {
		blocks := inARow(b.stages)
		for _, block := range blocks {
			b.write(p.Microbatches, microbatch(block, F)...)
		}
		for _, block := range slices.Backward(blocks) {
			b.write(p.Microbatches, microbatch(block, B)...)
		}
	}), nil
}

// inARow splits a list of ascending stages into blocks of consecutive stages.
func inARow(stages []int) [][]int {
	var blocks [][]int
	for i, stage := range stages {
		if i == 0 || stage != stages[i-1]+1 {
			blocks = append(blocks, nil)
		}
		last := &blocks[len(blocks)-1]
		*last = append(*last, stage)
	}
	return blocks
}

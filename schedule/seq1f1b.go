package schedule

import "fmt"

// Seq1F1B is 1F1B on slices of sequences (Plan.Slices), for models in which a slice
// reads the slices before it, as with causal attention. A microbatch is a slice. The
// forward takes the slices of a sequence in order, the backward in reverse; rank r
// runs P-2-r+Slices forwards first, so that a whole sequence is there when its
// backward begins.
//
// Rank r has P-1-r+Slices slices in flight at most. It differs from other rules in
// the order in which gradients are added (L9). Stages are placed as for OneFOneB.
// Errors wrap ErrParams.
func Seq1F1B(p Params) (*Plan, error) {
	if err := p.check("seq1f1b", takesSlices); err != nil {
		return nil, err
	}
	blocks, err := p.chain("seq1f1b")
	if err != nil {
		return nil, err
	}
	ranks, microbatches := p.Placement.Ranks, p.Microbatches
	slices := max(p.Slices, 1)
	if written := min(slices, microbatches); int64(written)*int64(p.Placement.Stages()) > maxBody/8 {
		return nil, fmt.Errorf("%w: sequences of %d slices over %d stages take more than %d actions to write out: use fewer slices",
			ErrParams, slices, p.Placement.Stages(), maxBody)
	}

	whole := microbatches / slices * slices // those of whole sequences
	var w Builder
	programs := make([][]Segment, ranks)
	for rank, stages := range blocks {
		warmup := min(ranks-2-rank+slices, microbatches)
		ahead := func(i int) { w.forward(stages, i) }
		back := func(i int) { w.backward(stages, inReverse(i, slices, microbatches)) }
		both := func(i int) { ahead(warmup + i); back(i) }
		turns := microbatches - warmup // all in whole sequences
		w.loop(0, warmup, 1, 1, ahead)
		w.loop(0, turns, slices, slices, both)
		w.loop(turns, whole, slices, slices, back)
		w.steps(whole, microbatches, back)
		programs[rank] = w.Program()
	}
	plan := p.plan("seq1f1b", programs...)
	if slices > 1 {
		plan.Name = fmt.Sprintf("seq1f1b slices=%d", slices)
		plan.Slices = slices
	}
	return plan, nil
}

// inReverse returns which slice is number i when the sequences are taken in order and
// the slices of each in reverse. The last sequence may be short.
func inReverse(i, slices, microbatches int) int {
	first := i - i%slices
	return min(first+slices, microbatches) - 1 - i%slices
}

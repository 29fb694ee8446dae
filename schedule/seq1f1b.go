package schedule

import (
	"fmt"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// Seq1F1B is 1F1B for slices of sequences (Plan.Slices), for models in which a slice depends on the
// slices before it, as with causal attention. A microbatch is a slice. The forward runs the slices
// of a sequence in order, and the backward in reverse order. Rank r runs P-2-r+Slices forwards
// first, so that all slices of a sequence have run before its backward begins.
//
// Rank r has at most P-1-r+Slices slices in flight. If Slices is more than 1, gradients are added in a
// different order than with other rules (L9). Stages are placed as for OneFOneB. Errors wrap ErrParams.
func Seq1F1B(p Params) (*Plan, error) {
	if err := p.check("seq1f1b", takesSlices); err != nil {
		return nil, err
	}
	if err := p.chain("seq1f1b"); err != nil {
		return nil, err
	}
	ranks, microbatches := p.Placement.Ranks, p.Microbatches
	slices := max(p.Slices, 1)
	if written := min(slices, microbatches); int64(written)*int64(p.Placement.Stages()) > maxBody/8 {
		return nil, diagnostic.Errorf(ErrParams, "sequences of %d slices over %d stages take more than %d actions to write out: use fewer slices",
			slices, p.Placement.Stages(), maxBody)
	}

	whole := microbatches / slices * slices // the number of microbatches in complete sequences
	var w Builder
	programs := make([][]Segment, ranks)
	for rank, stages := range p.Placement.byRank() {
		warmup := min(ranks-2-rank+slices, microbatches)
		write := func(pattern []Action, mb int) {
			for _, a := range pattern {
				w.Append(a.Shift(mb))
			}
		}
		forwards, backwards := microbatch(stages, F), microbatch(stages, B)
		forward := func(i int) { write(forwards, i) }
		backward := func(i int) { write(backwards, inReverse(i, slices, microbatches)) }
		left := microbatches - warmup // the number of forwards after the warm-up, which alternate with backwards of complete sequences
		w.loop(0, warmup, 1, 1, forward)
		w.loop(0, left, slices, slices, func(i int) { forward(warmup + i); backward(i) })
		w.loop(left, whole, slices, slices, backward)
		w.loop(whole, microbatches, slices, slices, backward) // an incomplete sequence
		programs[rank] = w.Program()
	}
	plan := p.plan("seq1f1b", programs...)
	if slices > 1 {
		plan.Name = fmt.Sprintf("seq1f1b slices=%d", slices)
		plan.Slices = slices
	}
	return plan, nil
}

// inReverse returns the microbatch that comes ith, from 0, in an order in which sequences ascend and the
// slices of each sequence descend. The last sequence may be incomplete.
func inReverse(i, slices, microbatches int) int {
	first := i - i%slices
	return min(first+slices, microbatches) - 1 - i%slices
}

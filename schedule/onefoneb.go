package schedule

import "github.com/weir-ml/weir/internal/formats/diagnostic"

// OneFOneB is 1F1B: rank r runs P-1-r forwards, then alternates between a forward and a backward,
// and finally runs the remaining backwards. Microbatches ascend in both.
//
// Rank r has at most P-r microbatches in flight. If a rank spends times F and B on a microbatch, the
// makespan has a bubble of (P-1)(F+B). Each rank has one or more consecutive stages, starting with the
// first stages on the first rank; a microbatch runs through all stages of a rank in a row. Errors wrap
// ErrParams.
func OneFOneB(p Params) (*Plan, error) {
	if err := p.check("1f1b", 0); err != nil {
		return nil, err
	}
	if err := p.chain("1f1b"); err != nil {
		return nil, err
	}
	return p.counted("1f1b", func(b *countingBuilder, rank int) {
		warmup := min(p.Placement.Ranks-1-rank, p.Microbatches)
		b.write(warmup, microbatch(b.stages, F)...)
		b.write(p.Microbatches-warmup, microbatch(b.stages, F, B)...)
		b.write(warmup, microbatch(b.stages, B)...)
	}), nil
}

// chain validates the placement for a rule that requires one or more consecutive stages per rank.
func (p Params) chain(rule string) error {
	before := -1
	for stage, rank := range p.Placement.Rank {
		if rank != before && rank != before+1 {
			return diagnostic.Errorf(ErrParams, "%s passes through the ranks once, but stage %d on rank %d comes after rank %d: place the stages in the order of the ranks, one or more in a row on each",
				rule, stage, rank, before)
		}
		before = rank
	}
	if before != p.Placement.Ranks-1 {
		return diagnostic.Errorf(ErrParams, "%s needs a stage on every rank: use %d ranks, or place a stage on each of the %d",
			rule, before+1, p.Placement.Ranks)
	}
	return nil
}

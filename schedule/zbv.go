package schedule

import (
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// ZBV is the handcrafted zero-bubble schedule on a V: microbatches reach stage r, on rank r, on their way
// to the last rank, and stage 2P-1-r, also on rank r, on their way back. Thus the first rank runs the last stage,
// the first gradient arrives as soon as the pipeline is full, and W fills the gaps.
//
// Every rank has at most P microbatches in flight at both stages. If F, I and W take equally long, no
// rank waits between its first and its last action, and the makespan has a bubble of (P-1)F/2, where F
// is the time that a rank spends on the forwards of a microbatch: rank r begins r stages, each of F/2,
// after the first rank.
//
// The published rule requires at least 2P-1 microbatches. With fewer, ZBV uses the order for 2P-1
// microbatches and omits the additional ones. The size of the plan does not depend on the number of
// microbatches. Errors wrap ErrParams.
func ZBV(p Params) (*Plan, error) {
	if err := p.onV("zb-v", MaxStages/2); err != nil {
		return nil, err
	}
	ranks := p.Placement.Ranks
	microbatches := max(p.Microbatches, 2*ranks-1)
	return p.counted("zb-v", func(b *countingBuilder, r int) {
		s0, s1 := r, 2*ranks-1-r
		f0, i0, w0 := NewAction(F, s0, 0), NewAction(I, s0, 0), NewAction(W, s0, 0)
		f1, i1, w1 := NewAction(F, s1, 0), NewAction(I, s1, 0), NewAction(W, s1, 0)
		b.write(2*(ranks-r)-1, f0)
		b.write(r, f1, f0)
		b.write(ranks-r, f1, i1, w1)
		b.write(microbatches-(2*ranks-1-r), f0, i0, w0, f1, i1, w1)
		b.write(ranks-1-r, i0, w0, f1, i1, w1)
		b.write(r, i0, i1)
		b.write(ranks-r, i0, w0)
		b.write(r, w1)
		b.write(r, w0)
	}), nil
}

// onV validates the parameters for a rule with two stages per rank, placed as a V, and a maximum
// number of ranks.
func (p Params) onV(rule string, most int) error {
	if err := p.check(rule, 0); err != nil {
		return err
	}
	ranks, stages := p.Placement.Ranks, p.Placement.Stages()
	if stages != 2*ranks || !slices.Equal(p.Placement.Rank, Wave(ranks, stages).Rank) {
		return diagnostic.Errorf(ErrParams, "%s runs two stages per rank, placed as a V: place %d stages as Wave(%d, %d) does",
			rule, 2*ranks, ranks, 2*ranks)
	}
	if ranks > most {
		return diagnostic.Errorf(ErrParams, "%s on %d ranks: the limit is %d", rule, ranks, most)
	}
	return nil
}

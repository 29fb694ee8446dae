package schedule

import (
	"slices"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// DualPipe is DeepSeek's schedule for two copies of the model that run through the ranks in opposite
// directions (Bidirectional): rank r runs stage r of the first copy and stage P-1-r of the second. The
// first half of the plan's microbatches runs through the first copy (Plan.Span). These microbatches are every
// second entry of the batch (Plan.BatchIndex), so that both copies can begin immediately. The forward of one copy and
// the backward of the other overlap (a joined pair), so that one computes while the other communicates. The schedule
// needs two copies of the weights, and the owner of the weights must add the gradients of the two copies.
//
// A rank has at most P+1 microbatches in flight. If a rank spends times F, B and W on a microbatch, and
// F&B on a joined pair, the makespan has a bubble of (P/2-1)(F&B+B-3W).
//
// The published rule requires an even number of ranks, and an even number of microbatches that is at
// least 2P. For an odd P, DualPipe uses the order for P+1 ranks, in which the middle rank replaces two
// ranks, and the figures above are those for P+1. For other numbers of microbatches, it uses the order for the
// next number that the published rule allows, and omits the additional microbatches. The size of the
// plan does not depend on the number of microbatches. Errors wrap ErrParams.
func DualPipe(p Params) (*Plan, error) {
	if err := p.check("dualpipe", takesCopies); err != nil {
		return nil, err
	}
	ranks := p.Placement.Ranks
	if p.Placement.Copies != 2 || p.Placement.Depth() != ranks || !slices.Equal(p.Placement.Rank, Bidirectional(ranks).Rank) {
		return nil, diagnostic.Errorf(ErrParams, "dualpipe runs two copies of a model in opposite directions, each with one stage per rank: place them as Bidirectional(%d) does",
			ranks)
	}
	half := (ranks + 1) / 2
	if half > bothWaysMost {
		return nil, diagnostic.Errorf(ErrParams, "dualpipe on %d ranks: the limit is %d", ranks, 2*bothWaysMost)
	}
	each := max((p.Microbatches+1)/2, 2*half) // microbatches per copy
	return p.counted("dualpipe", func(b *countingBuilder, r int) {
		away, towards := r, 2*ranks-1-r // the stages of the first and the second copy
		if r < half {
			b.bothWays(r, half, each, away, towards)
		} else {
			b.bothWays(ranks-1-r, half, each, towards, away)
		}
	}), nil
}

package schedule

import "slices"

// DualPipeV is one half of DeepSeek's DualPipe: each rank has two stages, placed as a V, and the
// forward of one and the backward of the other overlap (a joined pair), so that one computes while
// the other communicates. The order is the same as in the published code, in which some backwards
// are split and most are not.
//
// A rank has at most 2P+1 microbatches in flight, counting each stage separately; this is as much as P+1/2 microbatches
// at both stages. If a stage takes times F, B and W for a microbatch, and a joined pair takes F&B, the makespan has a
// bubble of (PP/2-1)(F&B+B-3W), where PP is 2P, as in the publication.
//
// The published rule requires at least 2P microbatches. With fewer, DualPipeV uses the order for 2P
// microbatches and omits the additional ones. The size of the plan does not depend on the number of
// microbatches. Errors wrap ErrParams.
func DualPipeV(p Params) (*Plan, error) {
	if err := p.onV("dualpipev", bothWaysMost); err != nil {
		return nil, err
	}
	ranks := p.Placement.Ranks
	microbatches := max(p.Microbatches, 2*ranks)
	return p.counted("dualpipev", func(b *countingBuilder, r int) {
		b.bothWays(r, ranks, microbatches, r, 2*ranks-1-r)
	}), nil
}

// bothWaysMost is the maximum number of ranks of half a DualPipe. It is limited because the size of the
// plan grows with the square of this number.
const bothWaysMost = 4096

// bothWays writes the program of rank r in half a DualPipe with the given number of ranks. The given
// number of microbatches runs in each direction: away from rank 0 through the rank's stage s0, and
// towards rank 0 through its stage s1.
func (b *countingBuilder) bothWays(r, ranks, microbatches, s0, s1 int) {
	f0, b0, i0, w0 := NewAction(F, s0, 0), NewAction(B, s0, 0), NewAction(I, s0, 0), NewAction(W, s0, 0)
	f1, b1, i1, w1 := NewAction(F, s1, 0), NewAction(B, s1, 0), NewAction(I, s1, 0), NewAction(W, s1, 0)
	f0with, f1with := f0.WithJoin(true), f1.WithJoin(true)

	// 1 and 2: fill the pipeline, in one direction and then in both.
	b.write(2*(ranks-r-1), f0)
	b.write(r+1, f0, f1)
	// 3: the first gradients have arrived.
	b.write(ranks-r-1, i1, w1, f1)
	// 4: the steady state. On the rank at which the directions meet, the first pair cannot overlap.
	pairs := microbatches - 2*ranks + r + 1
	if r == ranks-1 {
		b.write(1, f0, b1, f1with, b0)
		pairs--
	}
	b.write(pairs, f0with, b1, f1with, b0)
	// 5: forwards remain in one direction only.
	b.write(ranks-r-1, b1, f1with, b0)
	// 6: backwards only; the second half of them are split, with W postponed.
	half := (r + 1) / 2
	b.write(half, b1, b0)
	waiting := slices.Repeat([]Action{w1, w0}, half)
	if r%2 == 0 {
		b.write(1, b1, i0)
		waiting = slices.Insert(waiting, 0, w0)
	}
	b.write(half, i1, i0)
	// 7 and 8: each W that was postponed, oldest first, interleaved with the last I and then alone.
	waiting = append(waiting, slices.Repeat([]Action{w0}, ranks-r-1)...)
	for _, w := range waiting[:ranks-r-1] {
		b.write(1, w, i0)
	}
	b.write(1, waiting[ranks-r-1:]...)
}

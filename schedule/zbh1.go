package schedule

// ZBH1 is the first handcrafted schedule from the zero-bubble paper: 1F1B with a split backward. I,
// for which the previous rank waits, runs in place of B; W, for which no rank waits, fills the gaps.
// Rank r postpones r of its W, so that every rank has at most P microbatches in flight, as many as the
// first rank of 1F1B. If a rank spends times F, I and W on a microbatch, the makespan has a bubble of
// (P-1)(F+I-W). With one stage per rank, PyTorch's InterleavedZeroBubble has the same order.
//
// Stages are placed as for OneFOneB. The size of the plan does not depend on the number of
// microbatches. Errors wrap ErrParams.
func ZBH1(p Params) (*Plan, error) {
	if err := p.check("zb-h1", 0); err != nil {
		return nil, err
	}
	return p.zeroBubble("zb-h1", p.Placement.Ranks)
}

// zeroBubble returns the plan for zb-h1 or zb-h2, in which no rank has more than inFlight
// microbatches in flight. A rank runs forwards until it must wait for the first gradient, then F
// and I in turn until inFlight microbatches are in flight, and from then on also a W for each F.
func (p Params) zeroBubble(name string, inFlight int) (*Plan, error) {
	if err := p.chain(name); err != nil {
		return nil, err
	}
	ranks := p.Placement.Ranks
	inFlight = min(inFlight, p.Microbatches+2*ranks) // a larger bound has no effect
	return p.counted(name, func(b *countingBuilder, r int) {
		warmup := max(0, min(inFlight-1-r, 2*(ranks-1-r)))
		putOff := inFlight - 1 - warmup
		full := max(0, p.Microbatches-(inFlight-1))
		b.write(warmup, microbatch(b.stages, F)...)
		b.write(putOff, microbatch(b.stages, F, I)...)
		b.write(full, microbatch(b.stages, F, I, W)...)
		b.write(warmup, microbatch(b.stages, I, W)...)
		b.write(putOff, microbatch(b.stages, W)...)
	}), nil
}

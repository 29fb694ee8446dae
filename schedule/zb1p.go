package schedule

// ZB1P is the zero-bubble schedule for several stages per rank: Interleaved with a split backward, in
// the same order as PyTorch's InterleavedZeroBubble. Rank r first runs P-1-r + (V-1)·Group forwards,
// and then alternates between a forward and an I. Each I except the first r is followed by the W that
// has waited longest.
//
// Every rank has at most (V-1)·Group + P microbatches in flight, counting each stage separately; with
// groups of P, this equals P microbatches at all stages of the rank. If a rank spends times F, I and W
// on a microbatch, the makespan has a bubble of (P-1)(F+I-W)/V.
//
// Placement and groups are the same as for Interleaved. With M microbatches, PyTorch's group is
// M / max(1, M/P), both quotients rounded down. Errors wrap ErrParams.
func ZB1P(p Params) (*Plan, error) {
	t, err := newTable(p, "zb1p")
	if err != nil {
		return nil, err
	}
	programs := make([][]Segment, t.ranks)
	for rank := range programs {
		warmup := min((t.depth-1)*t.group+t.ranks-1-rank, t.forwards)
		programs[rank] = t.program(rank, delayed{F, 0}, delayed{I, warmup}, delayed{W, warmup + rank})
	}
	return p.plan(t.name, programs...), nil
}

package schedule

// ZB1P is the zero-bubble schedule on several stages a rank: Interleaved with the
// backward in two halves, as PyTorch's InterleavedZeroBubble has it. Rank r runs
// P-1-r + (V-1)·Group forwards first, then a forward and an I in turn. Each I but
// the first r is followed by the W that has waited longest.
//
// Every rank has (V-1)·Group + P microbatches in flight at most, counted stage by
// stage: P whole ones with the group of P. With F, I and W the time of a rank, the
// makespan has a bubble of (P-1)(F+I-W)/V.
//
// Placement and groups are those of Interleaved. PyTorch's group of M microbatches is
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

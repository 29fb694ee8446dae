package schedule

// VHalf is the half-memory schedule from "Pipeline Parallelism with Controllable Memory". Each
// rank has two stages, placed as a V, and the steps of a microbatch are spaced so that a rank has at
// most (P+2)/2 microbatches in flight at both stages, rounded down. If F, I and W take equally long and there are
// many microbatches and at least three ranks, the makespan has a bubble of (3P/2 - 7/2)F for an even
// number of ranks, and of (3P/2 - 2)F for an odd number, where F is the time that a rank spends on the
// forwards of a microbatch. VHalf assumes that W + 2I >= 2F and W + 2F >= 2I; otherwise it loses more
// time.
//
// The paper's code searches for a good order of the first and last microbatches. VHalf does not search
// (see followV), but its bubble is the same.
//
// The size of the plan does not depend on the number of microbatches. VHalf supports up to 512 ranks.
// Errors wrap ErrParams.
func VHalf(p Params) (*Plan, error) {
	if err := p.onV("v-half", vMost); err != nil {
		return nil, err
	}
	ranks := p.Placement.Ranks
	apart := 0 // a delay that keeps two steps of a rank from falling into one slot
	if ranks%2 == 0 {
		apart = 3
	}
	return p.plan("v-half", p.followV((ranks+2)/2*2, func(rank int) [4]int {
		return [...]int{
			vF0: 2 * rank,
			vF1: 3*ranks - 2 - rank,
			vI1: 3*ranks - 1 + 2*rank + apart,
			vI0: 6*ranks - 2 - rank + apart,
		}
	})...), nil
}

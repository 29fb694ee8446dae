package schedule

// VMin is the minimum-memory schedule from "Pipeline Parallelism with Controllable Memory". Each
// rank has two stages, placed as a V, and each microbatch runs through all stages without a pause,
// so that a rank has at most (P+4)/3 microbatches in flight at both stages, rounded down. If F, I and W take
// equally long and there are many microbatches and at least three ranks, the makespan has a bubble
// of (2P - 5/2)F, or of (2P - 7/2)F if P is a multiple of 3, where F is the time that a rank spends on
// the forwards of a microbatch. If F, I and W do not take equally long, VMin loses far more time than
// VHalf.
//
// The size of the plan does not depend on the number of microbatches. VMin supports up to 512 ranks.
// Errors wrap ErrParams.
func VMin(p Params) (*Plan, error) {
	if err := p.onV("v-min", vMost); err != nil {
		return nil, err
	}
	ranks := p.Placement.Ranks
	apart := 0 // a delay that keeps two steps of a rank from falling into one slot
	if ranks%3 == 0 {
		apart = 2
	}
	return p.plan("v-min", p.followV((ranks+4)/3*2, func(rank int) [4]int {
		return [...]int{
			vF0: rank,
			vF1: 2*ranks - 1 - rank,
			vI1: 2*ranks + rank + apart,
			vI0: 4*ranks - 1 - rank + apart,
		}
	})...), nil
}

package schedule

import "fmt"

// ZBH2 is the second handcrafted schedule from the zero-bubble paper. It is faster than ZBH1 but needs
// more memory. Rank r runs 2(P-1-r) forwards before the first gradient arrives, and postpones W
// until 2P-1 microbatches are in flight on every rank. If F, I and W take equally long, no rank
// waits between its first and its last action. The makespan still has a bubble of (P-1)F, because
// rank r begins later than the first rank by the time of r forwards.
//
// Params.Cap sets another maximum number of microbatches in flight. Between P, which gives ZBH1, and
// 2P-1, each increment saves every rank the time of one forward between its first and its last
// action. With a Cap of less than P, the ranks wait for memory; a Cap of more than 2P-1 only postpones W further.
//
// Stages are placed as for OneFOneB. The size of the plan does not depend on the number of
// microbatches. Errors wrap ErrParams.
func ZBH2(p Params) (*Plan, error) {
	if err := p.check("zb-h2", takesCap); err != nil {
		return nil, err
	}
	if p.Cap == 0 {
		return p.zeroBubble("zb-h2", 2*p.Placement.Ranks-1)
	}
	return p.zeroBubble(fmt.Sprintf("zb-h2 cap=%d", p.Cap), p.Cap)
}

package schedule

import "fmt"

// ZBH2 is the second handcrafted schedule of the zero-bubble paper: it buys time with
// memory. Rank r runs 2(P-1-r) forwards while the first gradient is on its way, and
// postpones W until 2P-1 microbatches are in flight, on every rank. If F, I and W
// take equally long no rank waits between its first and its last action. The makespan
// still has a bubble of (P-1)F, because rank r begins r forwards after the first.
//
// Params.Cap is another number in flight. From P, which is ZBH1, to 2P-1 each one
// more saves every rank the time of a forward between its first and its last action.
// With fewer than P the ranks wait for memory; more than 2P-1 only puts off W further.
//
// Stages are placed as for OneFOneB. The size of the plan does not depend on the
// number of microbatches. Errors wrap ErrParams.
func ZBH2(p Params) (*Plan, error) {
	if err := p.check("zb-h2", takesCap); err != nil {
		return nil, err
	}
	if p.Cap == 0 {
		return p.zeroBubble("zb-h2", 2*p.Placement.Ranks-1)
	}
	return p.zeroBubble(fmt.Sprintf("zb-h2 cap=%d", p.Cap), p.Cap)
}

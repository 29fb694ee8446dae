package choose

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// maxPostedActions is the largest number of actions in a plan whose receives are posted according to the
// costs.
const maxPostedActions = 1 << 16

// message is a message from one rank to another.
type message struct {
	from, to      int   // ranks
	sent          int64 // time of the send
	send, receive schedule.Action
}

// postReceives returns the plan for PyTorch with each receive posted before the computation during
// which its message is sent according to the costs, so that no transfer starts late. For a message
// that is sent exactly at the end of a computation, the receive precedes this computation if the
// receiver has the higher rank. So the transfers are ordered in time, and the plan does not deadlock even
// if ranks wait at their receives, as they do with NCCL.
func postReceives(plan *schedule.Plan, costs *simulate.Costs) (*schedule.Plan, error) {
	computations := lower.Computations(plan)
	timeline := make([][]simulate.Event, len(computations.Programs))
	if _, err := simulate.Timeline(computations, costs, 0, func(e simulate.Event) { timeline[e.Rank] = append(timeline[e.Rank], e) }); err != nil {
		return nil, err
	}
	received := make([][]message, len(timeline)) // by rank
	for _, events := range timeline {
		for _, e := range events {
			if m, ok := messageOf(computations, e); ok {
				received[m.to] = append(received[m.to], m)
			}
		}
	}
	for rank, events := range timeline {
		slices.SortStableFunc(received[rank], func(a, b message) int { return cmp.Compare(a.sent, b.sent) })
		var list, sends []schedule.Action
		next := received[rank]
		for _, e := range events {
			if joined := len(list) > 0 && list[len(list)-1].Joined(); !joined {
				list, sends = append(list, sends...), sends[:0]
				for len(next) > 0 && (next[0].sent < e.End || next[0].sent == e.End && next[0].from < rank) {
					list, next = append(list, next[0].receive), next[1:]
				}
			}
			list = append(list, e.Action)
			if m, ok := messageOf(computations, e); ok {
				sends = append(sends, m.send)
			}
		}
		computations.Programs[rank] = []schedule.Segment{{Body: append(list, sends...), Repeat: 1}}
	}
	return computations, nil
}

// messageOf returns the message that a computation sends to another rank, if any.
func messageOf(plan *schedule.Plan, e simulate.Event) (message, bool) {
	stage, placement := e.Action.Stage(), plan.Placement
	send, receive, to := schedule.SendF, schedule.RecvF, stage+1
	switch e.Action.Kind() {
	case schedule.F:
		if placement.Last(stage) {
			return message{}, false
		}
	case schedule.B, schedule.I:
		if send, receive, to = schedule.SendB, schedule.RecvB, stage-1; placement.First(stage) || !plan.HasBackward(to) {
			return message{}, false
		}
	default:
		return message{}, false
	}
	mb := e.Action.Microbatch()
	return message{e.Rank, placement.Rank[to], e.End, schedule.Act(send, stage, mb), schedule.Act(receive, to, mb)}, placement.Rank[to] != e.Rank
}

package choose

import (
	"cmp"
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// mostPosted is the most actions of a plan whose receives are posted by the costs.
const mostPosted = 1 << 16

// message is a message from one rank to another, and the time of its send.
type message struct {
	from, to      int // ranks
	at            int64
	send, receive schedule.Action
}

// posted returns the plan of PyTorch with receives that are posted by the clock of the costs:
// each before the computation during which its message is sent, so that no hop takes longer than
// necessary. A message that is sent at the end of a computation counts as sent during it for a
// higher rank. So the order of the transfers is an order in time, and ranks that wait at their
// receives, as over NCCL, come to the end too.
func posted(plan *schedule.Plan, costs *simulate.Costs) (*schedule.Plan, error) {
	bare := lower.Computations(plan)
	timeline := make([][]simulate.Event, len(bare.Programs))
	if _, err := simulate.Timeline(bare, costs, 0, func(e simulate.Event) { timeline[e.Rank] = append(timeline[e.Rank], e) }); err != nil {
		return nil, err
	}
	received := make([][]message, len(timeline)) // by rank
	for _, events := range timeline {
		for _, e := range events {
			if m, sent := sentBy(bare, e); sent {
				received[m.to] = append(received[m.to], m)
			}
		}
	}
	for rank, events := range timeline {
		slices.SortStableFunc(received[rank], func(a, b message) int { return cmp.Compare(a.at, b.at) })
		var list, sends []schedule.Action
		next := received[rank]
		for _, e := range events {
			if joined := len(list) > 0 && list[len(list)-1].Joined(); !joined {
				list, sends = append(list, sends...), sends[:0]
				for len(next) > 0 && (next[0].at < e.End || next[0].at == e.End && next[0].from < rank) {
					list, next = append(list, next[0].receive), next[1:]
				}
			}
			list = append(list, e.Action)
			if m, sent := sentBy(bare, e); sent {
				sends = append(sends, m.send)
			}
		}
		bare.Programs[rank] = []schedule.Segment{{Body: append(list, sends...), Repeat: 1}}
	}
	return bare, nil
}

// sentBy returns the message that a computation makes for another rank, if it makes one.
func sentBy(plan *schedule.Plan, e simulate.Event) (message, bool) {
	stage, place := e.Action.Stage(), plan.Placement
	send, receive, to := schedule.SendF, schedule.RecvF, stage+1
	switch e.Action.Kind() {
	case schedule.F:
		if place.Last(stage) {
			return message{}, false
		}
	case schedule.B, schedule.I:
		if send, receive, to = schedule.SendB, schedule.RecvB, stage-1; place.First(stage) || !plan.HasBackward(to) {
			return message{}, false
		}
	default:
		return message{}, false
	}
	mb := e.Action.Microbatch()
	return message{e.Rank, place.Rank[to], e.End, schedule.Act(send, stage, mb), schedule.Act(receive, to, mb)}, place.Rank[to] != e.Rank
}

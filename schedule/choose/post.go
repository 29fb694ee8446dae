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
	from, to            int   // ranks
	sent                int64 // time of the send
	send, receive, wait schedule.Action
	begun               bool // the sender has begun a computation since the message was read
}

// postReceives returns the plan for PyTorch with each receive posted before the computation during
// which its message is sent according to the costs, so that no transfer starts late. For a message
// that is sent exactly at the end of a computation, the receive precedes this computation if the
// receiver has the higher rank. So the transfers are ordered in time, and the plan does not deadlock even
// if ranks wait at their receives, as they do with NCCL. A rank waits for a send as in a plan of
// [lower.Transfers].
func postReceives(plan *schedule.Plan, costs *simulate.Costs) (*schedule.Plan, error) {
	computations := lower.Computations(plan)
	timeline := make([][]simulate.TimedAction, len(computations.Programs))
	if _, err := simulate.Timeline(computations, costs, 0, func(e simulate.TimedAction) { timeline[e.Rank] = append(timeline[e.Rank], e) }); err != nil {
		return nil, err
	}
	received, read := make([][]message, len(timeline)), map[schedule.Action]int64{} // by rank; by receive: the time at which its message has been read
	for _, events := range timeline {
		for _, e := range events {
			if m, ok := messageOf(computations, e); ok {
				received[m.to] = append(received[m.to], m)
			}
			receive := schedule.RecvB
			if e.Action.Kind() == schedule.F {
				receive = schedule.RecvF
			}
			if e.Action.Kind().Compute() && e.Action.Kind() != schedule.W {
				read[schedule.NewAction(receive, e.Action.Stage(), e.Action.Microbatch())] = e.End
			}
		}
	}
	for rank, events := range timeline {
		slices.SortStableFunc(received[rank], func(a, b message) int { return cmp.Compare(a.sent, b.sent) })
		var list, sends []schedule.Action
		var sent []message
		next := received[rank]
		for _, e := range events {
			if joined := len(list) > 0 && list[len(list)-1].Joined(); !joined {
				list, sends = append(list, sends...), sends[:0]
				for len(next) > 0 && (next[0].sent < e.End || next[0].sent == e.End && next[0].from < rank) {
					list, next = append(list, next[0].receive), next[1:]
				}
				if e.Action.Kind().Compute() {
					sent = slices.DeleteFunc(sent, func(m message) bool {
						if m.begun {
							list = append(list, m.wait)
						}
						return m.begun
					})
					for i := range sent {
						sent[i].begun = read[sent[i].receive] <= e.Start
					}
				}
			}
			list = append(list, e.Action)
			if m, ok := messageOf(computations, e); ok {
				sends, sent = append(sends, m.send), append(sent, m)
			}
		}
		list = append(list, sends...)
		for _, m := range sent {
			list = append(list, m.wait)
		}
		computations.Programs[rank] = []schedule.Segment{{Body: list, Repeat: 1}}
	}
	return computations, nil
}

// messageOf returns the message that a computation sends to another rank, if any.
func messageOf(plan *schedule.Plan, e simulate.TimedAction) (message, bool) {
	stage, placement := e.Action.Stage(), plan.Placement
	send, receive, wait, to := schedule.SendF, schedule.RecvF, schedule.WaitF, stage+1
	switch e.Action.Kind() {
	case schedule.F:
		if placement.Last(stage) {
			return message{}, false
		}
	case schedule.B, schedule.I:
		if send, receive, wait, to = schedule.SendB, schedule.RecvB, schedule.WaitB, stage-1; placement.First(stage) || !plan.HasBackward(to) {
			return message{}, false
		}
	default:
		return message{}, false
	}
	mb := e.Action.Microbatch()
	return message{from: e.Rank, to: placement.Rank[to], sent: e.End, send: schedule.NewAction(send, stage, mb), receive: schedule.NewAction(receive, to, mb), wait: schedule.NewAction(wait, stage, mb)},
		placement.Rank[to] != e.Rank
}

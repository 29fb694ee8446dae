package slots

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// maxSends is the largest number of actions of a plan that LeastSends simulates.
const maxSends = 1 << 16

// LeastSends returns the least K for which a limit of K outstanding sends on each rank does not increase the makespan.
// A send is outstanding until its buffer is released. At the limit, a rank waits for the send that was received first
// before it starts another one. PyTorch 2.15 calls this budget max_outstanding_sends, although PyTorch may wait for
// another send.
//
// The result is 0 if the plan has no sends, or more than 65,536 actions. The errors are those of
// simulate.Run. The cost is at most K + 1 simulations.
func LeastSends(plan *schedule.Plan, costs *simulate.Costs) (int, error) {
	var actions int64
	for rank := range plan.Programs {
		actions += plan.Actions(rank)
	}
	if !plan.HasTransfers() || actions > maxSends {
		return 0, nil
	}
	lists := make([][]schedule.Action, len(plan.Programs)) // without waits
	most := 0
	for rank := range lists {
		sends := 0
		for a := range plan.All(rank) {
			switch a.Kind() {
			case schedule.WaitF, schedule.WaitB:
				continue
			case schedule.SendF, schedule.SendB:
				sends++
			}
			lists[rank] = append(lists[rank], a)
		}
		most = max(most, sends)
	}
	free, received := listed(plan, lists), map[schedule.Action]int64{}
	report, err := simulate.Timeline(free, costs, plan.Capacity, func(e simulate.TimedAction) {
		if send := sendOf(e.Action); send != 0 {
			received[send] = max(received[send], e.End)
		}
	})
	if err != nil {
		return 0, err
	}
	for k := 1; k < most; k++ {
		limited, err := simulate.Run(listed(plan, withWaits(lists, k, received)), costs, plan.Capacity)
		if err == nil && limited.Makespan <= report.Makespan { // a limit that is too low deadlocks
			return k, nil
		}
	}
	return most, nil
}

// sendOf returns a send without its drops, or the send that a receive belongs to. It returns 0 for other
// actions.
func sendOf(a schedule.Action) schedule.Action {
	switch a.Kind() {
	case schedule.SendF, schedule.SendB:
		return schedule.NewAction(a.Kind(), a.Stage(), a.Microbatch())
	case schedule.RecvF:
		return schedule.NewAction(schedule.SendF, a.Stage()-1, a.Microbatch())
	case schedule.RecvB:
		return schedule.NewAction(schedule.SendB, a.Stage()+1, a.Microbatch())
	}
	return 0
}

// listed returns the plan with other programs, and without lifetimes.
func listed(plan *schedule.Plan, lists [][]schedule.Action) *schedule.Plan {
	p := *plan
	p.StageInfo, p.Parts, p.StageWindows, p.SendWindows, p.EntryWindows = nil, nil, nil, nil, nil
	p.Programs = make([][]schedule.Segment, len(lists))
	for rank, list := range lists {
		p.Programs[rank] = []schedule.Segment{{Body: list, Repeat: 1}}
	}
	return &p
}

// withWaits returns the programs with waits, so that no rank has more than k outstanding sends.
func withWaits(lists [][]schedule.Action, k int, received map[schedule.Action]int64) [][]schedule.Action {
	limited := make([][]schedule.Action, len(lists))
	for rank, list := range lists {
		var open []schedule.Action
		wait := func(i int) {
			kind := schedule.WaitF
			if open[i].Kind() == schedule.SendB {
				kind = schedule.WaitB
			}
			limited[rank] = append(limited[rank], schedule.NewAction(kind, open[i].Stage(), open[i].Microbatch()))
			open = slices.Delete(open, i, i+1)
		}
		for _, a := range list {
			if kind := a.Kind(); kind == schedule.SendF || kind == schedule.SendB {
				if len(open) == k {
					first := 0
					for i, send := range open {
						if received[send] < received[open[first]] {
							first = i
						}
					}
					wait(first)
				}
				open = append(open, sendOf(a))
			}
			limited[rank] = append(limited[rank], a)
		}
		for len(open) > 0 {
			wait(0)
		}
	}
	return limited
}

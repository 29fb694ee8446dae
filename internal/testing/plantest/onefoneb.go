package plantest

import (
	"slices"

	"github.com/weir-ml/weir/schedule"
)

// OneFOneB returns the 1F1B plan with depth consecutive stages on each rank. Rank r runs P-1-r forwards,
// then alternates between forwards and backwards, and then runs the remaining backwards. With
// transfers, a rank waits for the send of an output after its gradient has arrived, or at the end,
// and for the send of a gradient after two more inputs have arrived. The first frozen stages are frozen
// and have no backward.
func OneFOneB(ranks, depth, frozen, microbatches int, transfers bool) *schedule.Plan {
	stages := ranks * depth
	p := &schedule.Plan{Name: "1f1b", Placement: schedule.Looped(ranks, stages), Microbatches: microbatches}
	for s := range stages {
		p.Placement.Rank[s] = s / depth
	}
	if frozen > 0 {
		p.Frozen = append(slices.Repeat([]bool{true}, frozen), make([]bool, stages-frozen)...)
	}
	for r := range ranks {
		first, last := r*depth, (r+1)*depth-1
		receives, sends := transfers && r > 0, transfers && r < ranks-1
		back, returns := sends && last >= frozen, transfers && first-1 >= frozen // the rank receives gradients, and sends gradients
		forward := func(mb int) (list []schedule.Action) {
			if receives {
				list = append(list, schedule.NewAction(schedule.RecvF, first, mb))
			}
			for s := first; s <= last; s++ {
				list = append(list, schedule.NewAction(schedule.F, s, mb))
			}
			if sends {
				list = append(list, schedule.NewAction(schedule.SendF, last, mb))
			}
			return list
		}
		backward := func(mb int) (list []schedule.Action) {
			if back {
				list = append(list, schedule.NewAction(schedule.RecvB, last, mb), schedule.NewAction(schedule.WaitF, last, mb))
			}
			for s := last; s >= max(first, frozen); s-- {
				list = append(list, schedule.NewAction(schedule.B, s, mb))
			}
			if returns {
				list = append(list, schedule.NewAction(schedule.SendB, first, mb))
			}
			return list
		}
		both := func(warmup, mb int, wait bool) []schedule.Action {
			list := forward(warmup + mb)
			if wait {
				list = append(list, schedule.NewAction(schedule.WaitB, first, mb-2))
			}
			return append(list, backward(mb)...)
		}
		warmup := min(ranks-1-r, microbatches)
		steady := microbatches - warmup
		begun := 0
		if returns {
			begun = min(2, steady)
		}
		var program []schedule.Segment
		add := func(repeat int, body ...schedule.Action) {
			if repeat > 0 && len(body) > 0 {
				program = append(program, schedule.Segment{Body: body, Repeat: repeat, Stride: 1})
			}
		}
		add(warmup, forward(0)...)
		add(begun, both(warmup, 0, false)...)
		add(steady-begun, both(warmup, begun, returns)...)
		add(warmup, backward(steady)...)
		if returns {
			add(microbatches-(steady-begun), schedule.NewAction(schedule.WaitB, first, steady-begun))
		}
		if sends && !back {
			add(microbatches, schedule.NewAction(schedule.WaitF, last, 0))
		}
		p.Programs = append(p.Programs, program)
	}
	return p
}

// Swap exchanges two actions of a body, in a copy of it.
func Swap(body *[]schedule.Action, a, b schedule.Action) {
	*body = slices.Clone(*body)
	i, k := slices.Index(*body, a), slices.Index(*body, b)
	(*body)[i], (*body)[k] = b, a
}

package plantest

import (
	"math/rand/v2"

	"github.com/weir-ml/weir/schedule"
)

// Computations returns the computations that a plan requires. The function split reports whether a
// microbatch has I and W instead of B in a stage that trains.
func Computations(p *schedule.Plan, split func(stage, mb int) bool) (list []schedule.Action) {
	for s := range p.Placement.Rank {
		for mb := range p.Microbatches {
			if !passes(p, s, mb) {
				continue
			}
			list = append(list, schedule.NewAction(schedule.F, s, mb))
			switch {
			case !backward(p, s):
			case frozen(p, s):
				list = append(list, schedule.NewAction(schedule.I, s, mb))
			case split(s, mb):
				list = append(list, schedule.NewAction(schedule.I, s, mb), schedule.NewAction(schedule.W, s, mb))
			default:
				list = append(list, schedule.NewAction(schedule.B, s, mb))
			}
		}
	}
	return list
}

// Shuffle sets the programs of a plan to computations in a random valid order. The
// function ascends reports whether a stage runs its actions of a kind in the order of microbatches.
// Some orders postpone forwards or weight gradients.
func Shuffle(rng *rand.Rand, p *schedule.Plan, computations []schedule.Action, ascends func(schedule.Kind) bool) {
	exists := map[schedule.Action]bool{}
	for _, a := range computations {
		exists[a] = true
	}
	gradient := func(stage, mb int) schedule.Action {
		if i := schedule.NewAction(schedule.I, stage, mb); exists[i] {
			return i
		}
		return schedule.NewAction(schedule.B, stage, mb)
	}
	missing, needed := map[schedule.Action]int{}, map[schedule.Action][]schedule.Action{}
	var ready []schedule.Action
	for _, a := range computations {
		needs := Needs(p, a, gradient)
		if previous := a.Shift(-1); a.Microbatch() > 0 && exists[previous] && ascends(a.Kind()) {
			needs = append(needs, previous)
		}
		for _, need := range needs {
			needed[need] = append(needed[need], a)
		}
		if missing[a] = len(needs); len(needs) == 0 {
			ready = append(ready, a)
		}
	}
	lists := make([][]schedule.Action, p.Placement.Ranks)
	late := []schedule.Kind{schedule.None, schedule.F, schedule.W}[rng.IntN(3)]
	for len(ready) > 0 {
		i := rng.IntN(len(ready))
		a := ready[i]
		if a.Kind() == late && rng.IntN(4) > 0 {
			continue
		}
		ready[i] = ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		rank := p.Placement.Rank[a.Stage()]
		lists[rank] = append(lists[rank], a)
		for _, b := range needed[a] {
			if missing[b]--; missing[b] == 0 {
				ready = append(ready, b)
			}
		}
	}
	p.Programs = listed(lists)
}

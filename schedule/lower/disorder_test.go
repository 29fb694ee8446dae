package lower_test

import (
	"math/rand/v2"
	"slices"

	"pgregory.net/rapid"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/internal/plantest"
)

// drawDisorder draws a plan without transfers on several ranks. The placement is random, some
// stages are frozen, backwards are full or split, sequences may have slices, the actions have a
// random valid order, and some neighbours are joined.
func drawDisorder(t *rapid.T) *schedule.Plan {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	ranks, stages := 1+rng.IntN(4), 1+rng.IntN(6)
	p := &schedule.Plan{
		Name: "disorder", Placement: schedule.Looped(ranks, stages), Microbatches: 1 + rng.IntN(6),
		Mode: schedule.Mode(rng.IntN(4) / 3), Slices: max(0, rng.IntN(6)-2),
	}
	for s := range stages {
		p.Placement.Rank[s] = rng.IntN(ranks)
	}
	if rng.IntN(3) == 0 {
		p.Frozen = make([]bool, stages)
		for s := range stages - 1 {
			p.Frozen[rng.IntN(stages)] = s%2 == 0
		}
		p.Frozen[rng.IntN(stages)] = false
	}

	type deed struct {
		action schedule.Action
		needs  []schedule.Action
	}
	split := map[plantest.Cell]bool{}
	backward := func(stage, mb int) schedule.Action {
		if split[plantest.Cell{Stage: stage, Mb: mb}] || p.Frozen != nil && p.Frozen[stage] {
			return schedule.Act(schedule.I, stage, mb)
		}
		return schedule.Act(schedule.B, stage, mb)
	}
	var left []deed
	for s := range stages {
		for m := range p.Microbatches {
			split[plantest.Cell{Stage: s, Mb: m}] = rng.IntN(2) == 0
		}
	}
	add := func(a schedule.Action) { left = append(left, deed{a, plantest.Needs(p, a, backward)}) }
	for s := range stages {
		for m := range p.Microbatches {
			add(schedule.Act(schedule.F, s, m))
			if p.HasBackward(s) {
				add(backward(s, m))
				if split[plantest.Cell{Stage: s, Mb: m}] && (p.Frozen == nil || !p.Frozen[s]) {
					add(schedule.Act(schedule.W, s, m))
				}
			}
		}
	}
	done := map[schedule.Action]bool{}
	lists := make([][]schedule.Action, ranks)
	for len(left) > 0 {
		i := rng.IntN(len(left))
		if slices.ContainsFunc(left[i].needs, func(need schedule.Action) bool { return !done[need] }) {
			continue
		}
		a := left[i].action
		done[a] = true
		rank := p.Placement.Rank[a.Stage()]
		lists[rank] = append(lists[rank], a)
		left = slices.Delete(left, i, i+1)
	}
	p.Programs = make([][]schedule.Segment, ranks)
	for rank, list := range lists {
		if len(list) > 0 {
			p.Programs[rank] = []schedule.Segment{{Body: list, Repeat: 1}}
		}
	}
	join(rng, p)
	return p
}

// join joins some adjacent actions if the plan remains valid.
func join(rng *rand.Rand, p *schedule.Plan) {
	for _, program := range p.Programs {
		for _, s := range program {
			for i := range len(s.Body) - 1 {
				if rng.IntN(3) > 0 || i > 0 && s.Body[i-1].Joined() {
					continue
				}
				s.Body[i] = s.Body[i].WithJoin(true)
				if check.Plan(p) != nil {
					s.Body[i] = s.Body[i].WithJoin(false)
				}
			}
		}
	}
}

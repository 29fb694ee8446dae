package lower_test

import (
	"github.com/weir-ml/weir/schedule"
)

// The oracle interprets a plan in the simplest way: it writes out every action and visits all of
// them, one microbatch at a time.

// ordered reports whether a plan on one rank runs exactly the required actions, in a valid order.
func ordered(p *schedule.Plan, split []bool) bool {
	type act struct {
		kind      schedule.Kind
		stage, mb int
	}
	done := map[act]bool{}
	stages := p.Placement.Stages()
	for a := range p.All(0) {
		k, s, m := a.Kind(), a.Stage(), a.Microbatch()
		has := func(kind schedule.Kind, stage int) bool { return done[act{kind, stage, m}] }
		back := func(stage int) bool { return has(schedule.B, stage) || has(schedule.I, stage) }
		frozen := s < len(p.Frozen) && p.Frozen[s]
		ok := s < stages && m < p.Microbatches && !has(k, s)
		switch k {
		case schedule.F:
			ok = ok && (s == 0 || has(schedule.F, s-1))
		case schedule.B, schedule.I:
			ok = ok && p.HasBackward(s) && has(schedule.F, s) && (s == stages-1 || back(s+1)) && !back(s)
			ok = ok && (k == schedule.I) == (frozen || ok && split[s])
		case schedule.W:
			ok = ok && p.HasBackward(s) && has(schedule.I, s) && !frozen
		default:
			return false
		}
		if !ok {
			return false
		}
		done[act{k, s, m}] = true
	}
	want := 0
	for s := range stages {
		want++
		if p.HasBackward(s) {
			want++
			if split[s] && !(s < len(p.Frozen) && p.Frozen[s]) {
				want++
			}
		}
	}
	return len(done) == want*p.Microbatches
}

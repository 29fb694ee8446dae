package lower_test

import (
	"math/rand/v2"
	"strings"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
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

// actions parses a list of actions and joined pairs such as (1F1;2B0); "-" is the zero action.
func actions(t require.TestingT, list string) (parsed []schedule.Action) {
	for word := range strings.FieldsSeq(list) {
		if word == "-" {
			parsed = append(parsed, 0)
			continue
		}
		pair := strings.Split(strings.Trim(word, "()"), ";")
		for i, text := range pair {
			a, err := schedule.ParseAction(text)
			require.NoError(t, err)
			parsed = append(parsed, a.WithJoin(i+1 < len(pair)))
		}
	}
	return parsed
}

// planOf returns the plan with the given list for each rank.
func planOf(t require.TestingT, placement []int, microbatches int, programs ...string) *schedule.Plan {
	p := &schedule.Plan{Name: "lists", Placement: schedule.Placement{Ranks: len(programs), Rank: placement}, Microbatches: microbatches}
	for _, list := range programs {
		p.Programs = append(p.Programs, []schedule.Segment{{Body: actions(t, list), Repeat: 1}})
	}
	return p
}

// drawDisorder draws a plan of computations on several ranks, in a random valid order.
func drawDisorder(t *rapid.T) *schedule.Plan {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	p, _ := plantest.Grow(rng, plantest.Features{Ranks: 4, Depth: 6, Microbatches: 6})
	return p
}

package schedule_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

// TestEveryScheduleThroughEveryPass makes every schedule for many sizes, adds
// transfers and lifetimes, and proves what came out, for links of each kind.
func TestEveryScheduleThroughEveryPass(t *testing.T) {
	for _, s := range schedule.Schedules() {
		for _, ranks := range []int{1, 2, 3, 4, 8} {
			place, err := s.Place(ranks, ranks*s.PerRank)
			require.NoError(t, err)
			facts := readingFacts(&s, place)
			for _, m := range []int{1, 2, 5, 16, 17, 110} {
				for _, mode := range []schedule.Mode{schedule.Training, schedule.ForwardOnly} {
					plan, err := s.Rule(schedule.Params{Placement: place, Microbatches: m, Mode: mode})
					require.NoError(t, err)
					require.NoError(t, schedule.Check(plan))
					for _, capacity := range []int{0, 1, schedule.Unlimited} {
						lowered := plan
						if ranks > 1 {
							lowered, err = schedule.Comms(plan, capacity)
							require.NoError(t, err, "%s, %d ranks, %d microbatches, %v, capacity %d", s.Name, ranks, m, mode, capacity)
						}
						marked, err := schedule.Lifetimes(lowered, facts, 3)
						require.NoError(t, err, "%s, %d ranks, %d microbatches, %v, capacity %d", s.Name, ranks, m, mode, capacity)
						require.NoError(t, schedule.CheckLinks(marked, capacity), "%s, %d ranks, %d microbatches, %v, capacity %d", s.Name, ranks, m, mode, capacity)
					}
				}
			}
		}
	}
}

// readingFacts are those of a model that reads part 0 in its first stage, and parts 1
// and 2 in its last one, forward and backward.
func readingFacts(s *schedule.Schedule, place schedule.Placement) []schedule.Facts {
	facts := make([]schedule.Facts, place.Stages())
	for stage := range facts {
		facts[stage].Split = s.Split
		if place.First(stage) {
			facts[stage].Reads[schedule.F] |= 1
		}
		if place.Last(stage) {
			for _, kind := range []schedule.Kind{schedule.F, schedule.B, schedule.I} {
				facts[stage].Reads[kind] |= 6
			}
		}
	}
	return facts
}

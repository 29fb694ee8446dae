package lower_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
)

// The clock visits the warm-up and the drain of a plan, and little of its steady state, because it
// finds a period soon after the last rank has reached the steady state.
func TestClockSkipsTheSteadyState(t *testing.T) {
	const ranks = 100
	for _, name := range []string{"zb-v", "dualpipe", "dualpipev"} {
		s, err := schedule.Find(name)
		require.NoError(t, err)
		placement, err := s.Place(ranks, ranks*s.PerRank)
		require.NoError(t, err)
		plan, err := s.Rule(schedule.Params{Placement: placement, Microbatches: 1_000_000})
		require.NoError(t, err)
		least := int64(0) // the number of actions of warm-ups and drains
		for _, program := range plan.Programs {
			for _, segment := range program {
				if segment.Repeat < 100_000 {
					least += int64(len(segment.Body)) * int64(segment.Repeat)
				}
			}
		}
		require.LessOrEqual(t, lower.Clocked(plan), least*3/2, name)
	}
}

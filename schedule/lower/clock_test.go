package lower_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
)

// The clock looks at the warm-up and the drain of a plan, and at little of its steady
// state: it finds a period soon after the last rank has come there.
func TestClockSkipsTheSteadyState(t *testing.T) {
	const ranks = 100
	for _, name := range []string{"zb-v", "dualpipe", "dualpipev"} {
		s, err := schedule.Find(name)
		require.NoError(t, err)
		placement, err := s.Place(ranks, ranks*s.PerRank)
		require.NoError(t, err)
		plan, err := s.Rule(schedule.Params{Placement: placement, Microbatches: 1_000_000})
		require.NoError(t, err)
		least := int64(0) // the actions of warm-ups and drains
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

package plantest

import (
	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

// Made returns the plan of a rule.
func Made(t require.TestingT, rule schedule.Rule, p schedule.Params) *schedule.Plan {
	plan, err := rule(p)
	require.NoError(t, err)
	return plan
}

// Find returns a schedule by its name, and its placement of stages on ranks. If stages is 0, there are
// as many as the schedule is made for.
func Find(t require.TestingT, name string, ranks, stages int) (schedule.Schedule, schedule.Placement) {
	s, err := schedule.Find(name)
	require.NoError(t, err)
	if stages == 0 {
		stages = ranks * s.PerRank
	}
	placement, err := s.Place(ranks, stages)
	require.NoError(t, err)
	return s, placement
}

// Named returns the plan of a schedule by its name, on the placement of Find.
func Named(t require.TestingT, name string, ranks, stages, microbatches int) *schedule.Plan {
	s, placement := Find(t, name, ranks, stages)
	return Made(t, s.Rule, schedule.Params{Placement: placement, Microbatches: microbatches})
}

package plantest

import "github.com/stretchr/testify/require"
import "github.com/weir-ml/weir/schedule"
import "github.com/weir-ml/weir/schedule/lower"
import "github.com/weir-ml/weir/schedule/check"

// LanguageModel returns facts of stages. The first stage reads part 0 in its forward, and
// the last reads parts 1 and 2 in forward and backward.
func LanguageModel(stages int) []schedule.Facts {
	facts := make([]schedule.Facts, stages)
	facts[0].Reads[schedule.F] |= 1
	facts[stages-1].Reads[schedule.F] |= 6
	facts[stages-1].Reads[schedule.B] |= 6
	return facts
}

// Build makes a plan, runs the lifetime pass and checks the result.
func Build(t require.TestingT, rule schedule.Rule, stages, microbatches, group int) *schedule.Plan {
	plan, err := rule(schedule.Params{Placement: schedule.Looped(1, stages), Microbatches: microbatches, Group: group})
	require.NoError(t, err)
	plan, err = lower.Lifetimes(plan, LanguageModel(stages), 3)
	require.NoError(t, err)
	require.NoError(t, check.Plan(plan))
	return plan
}

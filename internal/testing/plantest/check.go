package plantest

import (
	"errors"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// CodesOf returns the codes of an error of package check, sorted and without duplicates, or nil for
// another error.
func CodesOf(err error) []check.Code {
	invalid, ok := errors.AsType[*check.Error](err)
	if !ok {
		return nil
	}
	var codes []check.Code
	for _, f := range invalid.Faults {
		codes = append(codes, f.Code)
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// RequireCodes fails unless the faults of the error have exactly the given codes.
func RequireCodes(t require.TestingT, err error, codes ...check.Code) {
	require.ErrorIs(t, err, check.ErrInvalidPlan)
	require.Equal(t, codes, CodesOf(err), "%v", err)
}

// RequireWhole fails if a plan lacks a required action, has an action on the wrong rank, or has an
// invalid joined pair.
func RequireWhole(t require.TestingT, p *schedule.Plan) {
	require.Empty(t, newJudge(p, schedule.Unlimited).missing(), p.Name)
	for _, program := range p.Programs {
		for _, s := range program {
			require.False(t, s.Body[len(s.Body)-1].Joined(), "%s: a body ends within a joined pair", p.Name)
		}
	}
}

// LanguageModel returns facts of stages. The first stage reads part 0 in its forward, and the last
// stage reads parts 1 and 2 in its forward and its backward.
func LanguageModel(stages int) []schedule.StageInfo {
	facts := make([]schedule.StageInfo, stages)
	facts[0].Reads[schedule.F] |= 1
	facts[stages-1].Reads[schedule.F] |= 6
	facts[stages-1].Reads[schedule.B] |= 6
	return facts
}

// Build returns the plan of a rule on one rank after the lifetime pass, and checks it.
func Build(t require.TestingT, rule schedule.Rule, stages, microbatches, group int) *schedule.Plan {
	plan, err := rule(schedule.Params{Placement: schedule.Looped(1, stages), Microbatches: microbatches, Group: group})
	require.NoError(t, err)
	plan, err = lower.Lifetimes(plan, LanguageModel(stages), 3)
	require.NoError(t, err)
	require.NoError(t, check.Plan(plan))
	return plan
}

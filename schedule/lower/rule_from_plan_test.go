package lower_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// TestRuleFromPlanOfOtherNumbers requests other numbers of microbatches from the plan of every schedule.
// RuleFromPlan rejects the number or returns a valid plan. If the steady state of a schedule is one loop, the plan
// equals the plan of its rule.
func TestRuleFromPlanOfOtherNumbers(t *testing.T) {
	const m = 64
	served := map[string]int{}
	for _, s := range schedule.Schedules() {
		place, err := s.Place(4, 4*s.PerRank)
		require.NoError(t, err)
		of := func(m int) *schedule.Plan {
			return plantest.Made(t, s.Rule, schedule.Params{Placement: place, Microbatches: m})
		}
		lowered := transferred(t, of(m), 1)
		offloaded, err := lower.Offload(of(m), slices.Repeat([]uint64{1}, place.Stages()), 1)
		require.NoError(t, err)
		for name, plan := range map[string]*schedule.Plan{s.Name: of(m), s.Name + ", lowered": lowered, s.Name + ", offloaded": offloaded} {
			rule := lower.RuleFromPlan(plan)
			for _, other := range []int{m, 1, 5, 63, 65, 72, 1000} {
				got, err := rule(schedule.Params{Placement: place, Microbatches: other})
				if other == m {
					require.NoError(t, err)
					require.Equal(t, plantest.Lists(plan), plantest.Lists(got))
				}
				if err != nil {
					require.ErrorIs(t, err, schedule.ErrParams)
					require.ErrorContains(t, err, fmt.Sprintf("is for 64 microbatches, and its loops cannot be repeated to fit %d", other))
					continue
				}
				served[name]++
				require.NoError(t, check.Plan(got))
				require.Equal(t, other, got.Microbatches)
				if s.Name == "gpipe" || s.Name == "1f1b" && other > 8 {
					want := plantest.Lists(of(other))
					require.Equal(t, want, plantest.Lists(lower.WithoutOffload(lower.Computations(got))), "%s at %d", name, other)
				}
			}
		}
	}
	for _, name := range []string{"gpipe", "1f1b", "zb-h1", "interleaved", "1f1b, lowered", "1f1b, offloaded"} {
		require.Greater(t, served[name], 1, name)
	}
}

func TestRuleFromPlanRefuses(t *testing.T) {
	place := schedule.Looped(2, 2)
	plan := plantest.Made(t, schedule.GPipe, schedule.Params{Placement: place, Microbatches: 3})
	for _, p := range []schedule.Params{{Cap: 1}, {Group: 2}, {Slices: 2}, {Microbatches: 0}} {
		p.Placement = place
		_, err := lower.RuleFromPlan(plan)(p)
		require.ErrorIs(t, err, schedule.ErrParams)
	}
	split := place
	split.Copies = 2
	two := *plan
	two.Placement = split
	_, err := lower.RuleFromPlan(&two)(schedule.Params{Placement: split, Microbatches: 3, Mode: schedule.ForwardOnly})
	require.ErrorIs(t, err, schedule.ErrParams)
}

package layout_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
)

// TestAlternatives lists alternatives with fewer microbatches in flight and smaller
// microbatches, none smaller than a quarter, and weighs them without a layout: their bounds are equal to those of their
// layouts.
func TestAlternatives(t *testing.T) {
	placement := schedule.Looped(4, 4)
	params := schedule.Params{Placement: placement, Microbatches: 20}
	passes := lower.Passes{StageInfo: facts(placement, false), Parts: 3, Capacity: 1}
	list := layout.Alternative{Rule: schedule.OneFOneB, Params: params, Profile: model(4, 1, 16, 8, 2, 1), Passes: passes}.Variants()
	var names []string
	for _, one := range list {
		names = append(names, one.Name)
		require.NotContains(t, one.Name, "160 microbatches", "an eighth of the largest")
	}
	require.Contains(t, names, `80 microbatches of shape class "tokens"`)
	require.Contains(t, names, "depth-first with at most 1 in flight on a rank (cap 1)")

	tried := layout.Weigh(list, layout.Config{Envelope: true})
	require.Len(t, tried, len(list))
	for i := range tried {
		one := &tried[i]
		require.Zero(t, one.Bytes)
		require.Positive(t, one.Allocations)
		require.NoError(t, one.LayOut(t.Context(), 1))
		require.GreaterOrEqual(t, one.Bytes, one.Bound, one.Name)
		require.Less(t, float64(one.Bytes), 1.5*float64(one.Bound), one.Name)
	}
}

// TestBudgetIsNamedOnce: one sentence says that the plan does not fit, for any number of
// ranks and alternatives.
func TestBudgetIsNamedOnce(t *testing.T) {
	plan := planned(t, "1f1b", 4, 20, schedule.Training)
	_, err := layout.Make(t.Context(), plan, model(4, 1, 16, 8), layout.Config{Search: quick, Budget: 100})
	require.ErrorIs(t, err, layout.ErrBudget)
	require.ErrorContains(t, err, "rank 3 needs")
	require.Equal(t, 1, strings.Count(err.Error(), layout.ErrBudget.Error()))
}

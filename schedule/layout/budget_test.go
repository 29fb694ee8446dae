package layout_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// TestBudget refuses a plan that does not fit. The error names the owners at its peak and the
// alternatives that would fit.
func TestBudget(t *testing.T) {
	profile := model(4, 1, 16, 8, 2)
	params := schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 20}
	passes := lower.Passes{StageInfo: facts(params.Placement, false), Parts: 3, Capacity: 1}
	plan := plantest.Made(t, schedule.OneFOneB, params)
	plan, err := lower.Prepare(plan, passes)
	require.NoError(t, err)
	needs := laid(t, plan, profile, layout.Config{Search: quick}).Height()

	cfg := layout.Config{Search: quick, Budget: needs}
	cfg.Instead = layout.Alternative{Rule: schedule.OneFOneB, Params: params, Profile: profile, Passes: passes}.Variants()
	laid(t, plan, profile, cfg)

	cfg.Budget = needs * 6 / 10
	_, err = layout.Make(context.Background(), plan, profile, cfg)
	require.ErrorIs(t, err, layout.ErrBudget)
	require.ErrorContains(t, err, "rank 0 needs")
	require.ErrorContains(t, err, "stage 0 (blocks): up (saved)")
	require.ErrorContains(t, err, "of 4 microbatches (0 to 3)")
	require.ErrorContains(t, err, "what would fit: depth-first with at most 2 in flight on a rank (cap 2)")
	require.ErrorContains(t, err, `80 microbatches of shape class "tokens" (6176 bytes)`)
	require.NotContains(t, err.Error(), `"tokens", `, "one change is enough")

	cfg.Budget = 6000
	_, err = layout.Make(context.Background(), plan, profile, cfg)
	require.ErrorContains(t, err, `what would fit: 80 microbatches of shape class "tokens", depth-first with at most`)

	cfg.Budget = 100
	_, err = layout.Make(context.Background(), plan, profile, cfg)
	require.ErrorContains(t, err, "none of the alternatives fits; the smallest is")
}

// TestFigures plans from figures, and agrees with the simulator on the peak if only saved
// tensors have bytes.
func TestFigures(t *testing.T) {
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1, Saved: 1024, FreedByI: 256, Carry: 128}}}
	for _, name := range []string{"1f1b", "zb-h2", "zb-v", "interleaved"} {
		plan := plantest.Named(t, name, 3, 0, 12)
		profile := layout.FromFigures(plan, []layout.Figures{{Stage: "stage", Input: 256, Weight: 768, Carry: 128}})
		plan, err := lower.Prepare(plan, lower.Passes{StageInfo: profile.StageInfo, Capacity: 1})
		require.NoError(t, err)
		report, err := simulate.Run(plan, costs, 1)
		require.NoError(t, err)
		made := laid(t, plan, profile, layout.Config{Search: quick})
		for rank, r := range made.Ranks {
			requireLayout(t, made, rank, name)
			require.Equal(t, report.Ranks[rank].Peak, r.Bound, "%s rank %d", name, rank)
		}
	}
}

// TestFrozenFigures: a frozen stage releases its saved buffers with I, and no stage before
// the first trained one keeps anything.
func TestFrozenFigures(t *testing.T) {
	plan := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(3, 3), Microbatches: 6, Frozen: []bool{true, false, true}})
	figures := []layout.Figures{{Stage: "stage", Output: 64, Gradient: 64, Input: 100, Weight: 200, Carry: 50, Forward: 30, Backward: 40}}
	profile := layout.FromFigures(plan, figures)
	require.NoError(t, profile.Validate())
	plan, err := lower.Prepare(plan, lower.Passes{StageInfo: profile.StageInfo, Capacity: 1})
	require.NoError(t, err)
	made := laid(t, plan, profile, layout.Config{Search: quick})
	for rank := range made.Ranks {
		requireLayout(t, made, rank, "frozen")
	}
	require.Less(t, made.Ranks[0].Bound, made.Ranks[1].Bound)
}

// TestAlternatives lists alternatives with fewer microbatches in flight and smaller
// microbatches, none smaller than a quarter, and weighs them without a layout: a quick layout of each needs at least its
// bound, and less than half as much again.
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

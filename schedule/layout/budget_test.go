package layout_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

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
	plan, err := schedule.OneFOneB(params)
	require.NoError(t, err)
	plan, err = lower.Prepare(plan, passes)
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
		s, err := schedule.Find(name)
		require.NoError(t, err)
		p, err := s.Place(3, 3*s.PerRank)
		require.NoError(t, err)
		plan, err := s.Rule(schedule.Params{Placement: p, Microbatches: 12})
		require.NoError(t, err)
		profile := layout.FromFigures(plan, []layout.Figures{{Stage: "stage", Input: 256, Weight: 768, Carry: 128}})
		plan, err = lower.Prepare(plan, lower.Passes{StageInfo: profile.StageInfo, Capacity: 1})
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
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(3, 3), Microbatches: 6, Frozen: []bool{true, false, true}})
	require.NoError(t, err)
	figures := []layout.Figures{{Stage: "stage", Output: 64, Gradient: 64, Input: 100, Weight: 200, Carry: 50, Forward: 30, Backward: 40}}
	profile := layout.FromFigures(plan, figures)
	require.NoError(t, profile.Validate())
	plan, err = lower.Prepare(plan, lower.Passes{StageInfo: profile.StageInfo, Capacity: 1})
	require.NoError(t, err)
	made := laid(t, plan, profile, layout.Config{Search: quick})
	for rank := range made.Ranks {
		requireLayout(t, made, rank, "frozen")
	}
	require.Less(t, made.Ranks[0].Bound, made.Ranks[1].Bound)
}

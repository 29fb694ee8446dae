package layout_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
)

// copying holds the figures of a stage with copies of weights of 1920 and 2560 bytes.
var copying = []layout.Figures{{Stage: "block", Output: 64, Gradient: 64, Input: 320, ForwardWeights: 1920, BackwardWeights: 2560}}

// copied returns a plan of 1F1B on two ranks, with stages that compute on copies of their
// weights, and its profile.
func copied(t *testing.T, p schedule.Params) (*schedule.Plan, *layout.Profile) {
	t.Helper()
	p.Placement = schedule.Looped(2, 2)
	plan, err := schedule.OneFOneB(p)
	require.NoError(t, err)
	profile := layout.FromFigures(plan, copying)
	plan, err = lower.Prepare(plan, lower.Passes{StageInfo: profile.StageInfo, Capacity: 1})
	require.NoError(t, err)
	return plan, profile
}

// TestCopiesAreLaidOut: copies live while an action reads them. Those for the forward end
// before those for the backward, and an evaluation has only copies for the forward.
func TestCopiesAreLaidOut(t *testing.T) {
	for _, m := range []int{1, 8, 1_000_000} {
		plan, profile := copied(t, schedule.Params{Microbatches: m})
		p, err := layout.Make(t.Context(), plan, profile, layout.Config{})
		require.NoError(t, err)
		for rank := range p.Ranks {
			require.True(t, p.Ranks[rank].Optimal)
			require.EqualValues(t, 4480, p.Ranks[rank].Peak.Classes[memory.FP8])
			if m > 8 {
				continue
			}
			var order []int64 // buffers born, and the complements of those that end
			var ends []int    // places
			alive := map[int]int64{}
			for c := range p.All(rank) {
				if c.Alloc {
					alive[c.Serial] = c.Bytes
				}
				if bytes := alive[c.Serial]; bytes < 1920 {
					continue
				} else if !c.Alloc {
					order, ends = append(order, -bytes), append(ends, c.Place)
				} else {
					order = append(order, bytes)
				}
			}
			require.Equal(t, []int64{1920, 2560, -1920, -2560}, order)
			require.Less(t, ends[0], ends[1])
		}
	}
	plan, profile := copied(t, schedule.Params{Microbatches: 8, Mode: schedule.ForwardOnly})
	p, err := layout.Make(t.Context(), plan, profile, layout.Config{})
	require.NoError(t, err)
	require.EqualValues(t, 1920, p.Ranks[1].Peak.Classes[memory.FP8])
}

// TestProfileOfCopies: a profile with copies survives JSON, and is refused if it does not
// add up.
func TestProfileOfCopies(t *testing.T) {
	_, profile := copied(t, schedule.Params{Microbatches: 2})
	var text bytes.Buffer
	require.NoError(t, layout.Write(&text, profile))
	require.Contains(t, text.String(), `"quantize": {"events":["a2","a3"],"out":["2","3"],"forward":1}`)
	require.Contains(t, text.String(), `"quantize_eval": {"events":["a2"],"out":["2"],"forward":1}`)
	require.Contains(t, text.String(), `{"split":true,"quantizes":true}`)
	read, err := layout.Read(&text)
	require.NoError(t, err)
	require.Equal(t, profile.Shapes[0].Stages[0].Quantize, read.Shapes[0].Stages[0].Quantize)
	require.Equal(t, profile.Shapes[0].Stages[0].QuantizeEval, read.Shapes[0].Stages[0].QuantizeEval)
	require.Equal(t, profile.StageInfo, read.StageInfo)

	for want, change := range map[string]func(t *layout.StageProfile){
		"hands over 2 buffers has 3 copies of weights for the forward":  func(t *layout.StageProfile) { t.Quantize.Forward = 3 },
		"hands over 2 buffers has -1 copies of weights for the forward": func(t *layout.StageProfile) { t.Quantize.Forward = -1 },
		"hands over 1 buffers has 1 copies of weights for the forward":  func(t *layout.StageProfile) { t.Forward.Forward = 1 },
		"QUANTIZE: buffer 3 (weights for the backward) is never released": func(t *layout.StageProfile) {
			t.Quantize.Out = t.Quantize.Out[:1]
		},
		"QUANTIZE in evaluation: buffer 2 (weights for the forward) is never released": func(t *layout.StageProfile) {
			t.QuantizeEval.Out, t.QuantizeEval.Forward = nil, 0
		},
	} {
		_, profile := copied(t, schedule.Params{Microbatches: 2})
		change(&profile.Shapes[0].Stages[0])
		err := profile.Validate()
		require.ErrorIs(t, err, layout.ErrProfile)
		require.True(t, strings.Contains(err.Error(), want), "%v\n%s", err, want)
	}

	plan, profile := copied(t, schedule.Params{Microbatches: 2})
	profile.Shapes[0].Stages[1].Quantize = nil
	_, err = layout.Make(t.Context(), plan, profile, layout.Config{})
	require.ErrorIs(t, err, layout.ErrProfile)
	require.ErrorContains(t, err, "stage 1 (block) has no profile of QUANTIZE")
}

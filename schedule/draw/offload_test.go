package draw_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// drawn returns a step as SVG, page and trace.
func drawn(t *testing.T, plan *schedule.Plan, costs *simulate.Costs) (svg, page, trace string) {
	step, err := draw.Simulate(plan, costs, schedule.Unlimited)
	require.NoError(t, err)
	var texts [3]strings.Builder
	require.NoError(t, step.SVG(&texts[0]))
	require.NoError(t, step.HTML(&texts[1]))
	require.NoError(t, step.Trace(&texts[2]))
	return texts[0].String(), texts[1].String(), texts[2].String()
}

// TestCopiesHaveARow draws copies that take time, and no row for copies that take none.
func TestCopiesHaveARow(t *testing.T) {
	plan, err := schedule.GPipe(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 4})
	require.NoError(t, err)
	plan, err = lower.Offload(plan, []uint64{1, 0}, 0)
	require.NoError(t, err)
	shown := func(farPerMiB int64) (svg, page, trace string) {
		return drawn(t, plan, &simulate.Costs{FarPerMiB: farPerMiB, Stages: []simulate.StageCosts{{F: 4, I: 4, W: 4, Saved: 1 << 20}}})
	}
	svg, page, trace := shown(3)
	require.Contains(t, svg, "<title>0OFFLOAD0, 4 ticks to 7 ticks</title>")
	require.Contains(t, svg, "copy to far memory")
	require.Contains(t, svg, "<title>0RELOAD0, ")
	require.Contains(t, page, `"name":"0 to far","stages":"","peak":"","boxes":[4,7,11,0,0,100,0,`)
	require.Contains(t, trace, `{"ph":"M","name":"thread_name","pid":0,"tid":2,"ts":0,"args":{"name":"to far memory"}}`)
	require.Contains(t, trace, `{"ph":"X","name":"0OFFLOAD0","cat":"OFFLOAD","pid":0,"tid":2,"ts":4,"dur":3,`)
	require.NotContains(t, trace, `"pid":1,"tid":2`)

	svg, page, trace = shown(0)
	require.NotContains(t, svg+page+trace, "0OFFLOAD0")
	require.NotContains(t, page, "0 to far")
}

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

// TestQuantize: a QUANTIZE that takes time is drawn, with its copies; one that takes no time
// is not.
func TestQuantize(t *testing.T) {
	plan, err := schedule.OneFOneB(schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 2})
	require.NoError(t, err)
	plan, err = lower.Quantize(plan, []schedule.StageInfo{{Quantizes: true}, {Quantizes: true}}, lower.AtStart)
	require.NoError(t, err)
	shown := func(costs simulate.StageCosts) (svg, trace string) {
		step, err := draw.Simulate(plan, &simulate.Costs{Stages: []simulate.StageCosts{costs}}, schedule.Unlimited)
		require.NoError(t, err)
		var picture, events strings.Builder
		require.NoError(t, step.SVG(&picture))
		require.NoError(t, step.Trace(&events))
		return picture.String(), events.String()
	}
	svg, trace := shown(simulate.StageCosts{F: 4, I: 4, W: 4, Quantize: 3, ForwardWeights: 5, BackwardWeights: 6})
	require.Contains(t, svg, "<title>1QUANTIZE, 0 ticks to 3 ticks</title>")
	require.Contains(t, svg, "Q weights quantized")
	require.Contains(t, trace, `{"ph":"X","name":"1QUANTIZE","cat":"QUANTIZE","pid":1,"tid":0,"ts":0,"dur":3,"args":{"stage":1,"microbatch":0,"kind":"QUANTIZE","position":0}}`)
	require.Contains(t, trace, `{"ph":"C","name":"live bytes","pid":0,"tid":0,"ts":3,"args":{"fp8":11}}`)

	svg, trace = shown(simulate.StageCosts{F: 4, I: 4, W: 4})
	require.NotContains(t, svg, `class="QUANTIZE"`)
	require.NotContains(t, svg, "quantized")
	require.NotContains(t, trace, "QUANTIZE")
}

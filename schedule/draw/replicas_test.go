package draw_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// TestExchangesHaveARow draws gathers and reductions of replicas, including those before the first computation and
// after the last one.
func TestExchangesHaveARow(t *testing.T) {
	plan, err := schedule.GPipe(schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 2})
	require.NoError(t, err)
	plan, err = lower.Shard(plan, 1)
	require.NoError(t, err)
	plan, err = lower.Reduce(plan, schedule.ShardWeights)
	require.NoError(t, err)
	shown := func(replicas int) (svg, page, trace string) {
		return drawn(t, plan, &simulate.Costs{Replicas: replicas, Shard: 3, ReplicaPerMiB: 3,
			Stages: []simulate.StageCosts{{F: 4, I: 4, W: 4, Weights: 2 << 20, Gradients: 2 << 20}}})
	}
	svg, page, trace := shown(2)
	require.Contains(t, svg, "<title>0UNSHARD, 0 ticks to 3 ticks</title>")
	require.Contains(t, svg, "<title>0F0, 3 ticks to 7 ticks</title>")
	require.Contains(t, svg, "<title>0REDUCE_GRAD, 69 ticks to 72 ticks</title>", "after the last computation")
	require.Contains(t, svg, "gradients reduced")
	require.Contains(t, page, `"name":"0 gather","stages":"","peak":"","boxes":[0,3,14,0,0,100,0,`)
	require.Contains(t, trace, `"args":{"name":"weights between replicas"}`)
	svg, page, trace = shown(1)
	require.NotContains(t, svg+page+trace, "REDUCE_GRAD,")
	require.NotContains(t, page, "0 gather")
}

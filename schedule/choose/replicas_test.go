package choose_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/simulate"
)

// Choose tries several numbers of gathered stages, including different numbers on different ranks. More memory allows
// more of them.
func TestGathered(t *testing.T) {
	const gib = 1 << 30
	request := choose.Request{Ranks: 4, Stages: 16, Microbatches: 16, Capacity: 1, Costs: &simulate.Costs{
		Stages:   []simulate.StageCosts{{F: 11_000, I: 11_000, W: 11_000, Saved: gib / 2, Weights: gib, Gradients: 2 * gib, Optimizer: 6 * gib}},
		Replicas: 8, Shard: schedule.ShardWeights, ReplicaPerMiB: 21,
	}}
	choice, err := choose.Choose(request)
	require.NoError(t, err)
	find := func(name string) *choose.Candidate {
		i := slices.IndexFunc(choice.All, func(c *choose.Candidate) bool { return c.Name() == name })
		require.GreaterOrEqual(t, i, 0, name)
		return choice.All[i]
	}
	gathered1, gathered2, gathered3 := find("breadth-first gathered 1"), find("interleaved group 4"), find("interleaved group 4 gathered 3")
	require.Equal(t, []int{1, 2, 3}, []int{gathered1.Gathered, gathered2.Gathered, gathered3.Gathered})
	require.Greater(t, gathered2.Report.Step, gathered3.Report.Step)
	require.Less(t, gathered2.Peak, gathered3.Peak)
	require.Greater(t, choice.Best.Report.Step, choice.Best.Report.Makespan, "a step includes the exchanges of replicas")

	by := find("interleaved group 4 gathered 2-4") // the first rank has the most microbatches in flight
	require.Equal(t, 2, by.GatheredBy[0])
	require.Equal(t, 4, by.GatheredBy[3])
	require.Equal(t, gathered2.Peak, by.Peak)
	require.Less(t, by.Report.Step, gathered2.Report.Step)

	request.Memory = choice.Best.Peak * 4 / 5
	least, err := choose.Choose(request)
	require.NoError(t, err)
	require.LessOrEqual(t, least.Best.Peak, request.Memory)
	require.Greater(t, least.Best.Report.Step, choice.Best.Report.Step)

	request.Gathered = 1
	fixed, err := choose.Choose(request)
	require.NoError(t, err)
	require.False(t, slices.ContainsFunc(fixed.All, func(c *choose.Candidate) bool { return c.Report != nil && c.Gathered != 1 }))
	request.Costs.Shard = schedule.ShardGradients
	_, err = choose.Choose(request)
	require.ErrorContains(t, err, "1 gathered stages at shard level 2: give 1 or more at level 3, or 0")
}

package simulate_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// planned returns the plan of a rule on 8 ranks with the given number of stages on each.
func planned(t *testing.T, rule schedule.Rule, perRank, microbatches int) *schedule.Plan {
	return plantest.Made(t, rule, schedule.Params{Placement: schedule.Looped(8, 8*perRank), Microbatches: microbatches})
}

// unshards returns the numbers of UNSHARDs on rank 0 with 1, 2 and 3 gathered stages.
func unshards(t *testing.T, p *schedule.Plan) (counts []int64) {
	for gathered := 1; gathered <= 3; gathered++ {
		sharded, err := lower.Shard(p, gathered)
		require.NoError(t, err)
		report := reportOf(t, sharded, &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1}}}, schedule.Unlimited)
		counts = append(counts, report.Ranks[0].Unshards)
	}
	return counts
}

// TestUnshards checks the table of docs/dev/measurements.md, which was computed independently from PyTorch's
// rule: gather the next stages of the rank and release all others.
func TestUnshards(t *testing.T) {
	for _, c := range []struct {
		name                  string
		rule                  schedule.Rule
		perRank, microbatches int
		want                  []int64
	}{
		{"interleaved", schedule.Interleaved, 2, 64, []int64{47, 2, 2}},
		{"interleaved", schedule.Interleaved, 4, 64, []int64{275, 36, 23}},
		{"interleaved", schedule.Interleaved, 8, 64, []int64{731, 100, 87}},
		{"interleaved", schedule.Interleaved, 4, 16, []int64{47, 12, 11}},
		{"breadth-first", schedule.BreadthFirst, 4, 64, []int64{7, 6, 5}},
		{"breadth-first", schedule.BreadthFirst, 8, 64, []int64{15, 14, 13}},
		{"breadth-first", schedule.BreadthFirst, 4, 16, []int64{7, 6, 5}},
	} {
		t.Run(fmt.Sprintf("%s V=%d M=%d", c.name, c.perRank, c.microbatches), func(t *testing.T) {
			require.Equal(t, c.want, unshards(t, planned(t, c.rule, c.perRank, c.microbatches)))
		})
	}
	blocks := planned(t, schedule.BreadthFirst, 4, 8) // one block after another
	for rank, list := range plantest.Lists(blocks) {
		blocks.Programs[rank] = []schedule.Segment{{Body: list, Repeat: 8, Stride: 8}}
	}
	blocks.Microbatches = 64
	require.Equal(t, []int64{49, 34, 19}, unshards(t, blocks), "depth-first in blocks of as many microbatches as ranks")
}

// A simulation of a million microbatches skips repeats, and its totals continue those of shorter steps.
func TestManyUnshards(t *testing.T) {
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 7, I: 7, W: 7, Weights: 1 << 20, Gradients: 1 << 20}}, Replicas: 4, Shard: 3, ReplicaPerMiB: 3, ReplicaLatency: 1}
	work := func(microbatches int) (int64, *simulate.Report) {
		p, err := lower.Shard(planned(t, schedule.Interleaved, 4, microbatches), 2)
		require.NoError(t, err)
		p, err = lower.Reduce(p, schedule.ShardWeights)
		require.NoError(t, err)
		n := workOf(t, p, costs, schedule.Unlimited)
		report := reportOf(t, p, costs, schedule.Unlimited)
		return n, report
	}
	_, few := work(64)
	_, more := work(128)
	n, many := work(1 << 20)
	require.Less(t, n, int64(1<<20))
	steps := int64(1<<20-64) / 64
	for rank := range few.Ranks {
		a, b := few.Ranks[rank], more.Ranks[rank]
		require.Equal(t, a.Unshards+steps*(b.Unshards-a.Unshards), many.Ranks[rank].Unshards)
		require.Equal(t, a.GatherWait+steps*(b.GatherWait-a.GatherWait), many.Ranks[rank].GatherWait)
		require.Equal(t, a.Peak, many.Ranks[rank].Peak)
	}
}

// TestExchanges follows a step of one rank and two stages by hand, at every shard level.
func TestExchanges(t *testing.T) {
	const mib = 1 << 20
	plan := plantest.FromText(t, "0 0", 1, "0F0 1F0 1B0 0B0")
	for level, want := range []struct {
		step, last, reducing, reduceWait, gatherWait, unshards, gathered, reduced int64
		peak                                                                      memory.ByClass
	}{
		// Reductions begin at 8 and 12, and the second waits for the first.
		0: {8 + 2*24 + 1, 12, 48, 45, 0, 0, 0, 12 * mib, memory.ByClass{memory.Resident: 2 * (4 + 4 + 8) * mib}},
		1: {8 + 24 + 1 + 24 + 1, 12, 24, 21, 0, 0, 6 * mib, 6 * mib, memory.ByClass{memory.Resident: 2 * (4 + 4 + 2) * mib}},
		// The second reduction begins when the rank has waited for the first.
		2: {8 + 2*(12+1) + 24 + 1, 12, 24, 22, 0, 0, 6 * mib, 6 * mib, memory.ByClass{memory.Resident: 2 * (4 + 1 + 2) * mib, memory.Unsharded: 2 * 4 * mib}},
		// The first F waits until 13. The weights of the second stage arrive at 25, after its F could start.
		3: {31 + 2*(12+1), 35, 24, 22, 10, 2, 6 * mib, 6 * mib, memory.ByClass{memory.Resident: 2 * (1 + 1 + 2) * mib, memory.Unsharded: 3 * 4 * mib}},
	} {
		costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 2, I: 2, W: 2, Weights: 4 * mib, Gradients: 4 * mib, Optimizer: 8 * mib}},
			Replicas: 4, Shard: level, ReplicaLatency: 1, ReplicaPerMiB: 4}
		p, err := plan, error(nil)
		if level == schedule.ShardWeights {
			p, err = lower.Shard(p, 2)
			require.NoError(t, err)
		}
		p, err = lower.Reduce(p, level)
		require.NoError(t, err)
		report := reportOf(t, p, costs, schedule.Unlimited)
		r := report.Ranks[0]
		require.Equal(t, []int64{want.step, want.last, want.reducing, want.reduceWait, want.gatherWait, want.unshards, want.gathered, want.reduced},
			[]int64{report.Step, r.Last, r.Reducing, r.ReduceWait, r.GatherWait, r.Unshards, r.GatheredBytes, r.ReducedBytes}, "level %d", level)
		require.Equal(t, want.peak, r.Classes, "level %d", level)
	}
}

package simulate_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// A stage of the tables of docs/dev/measurements.md has half a billion parameters, in bfloat16 with float32
// gradients, a float32 copy and AdamW's moments. F, I and W of a microbatch take 11 ms each. A link between ranks is
// free, and 8 replicas are connected at one of two rates.
var documented = simulate.Costs{
	Unit: "ms", Scale: 1_000_000, Replicas: 8, ReplicaLatency: 20_000,
	Stages: []simulate.StageCosts{{
		F: 11_000_000, I: 11_000_000, W: 11_000_000, Saved: 512 << 20, FreedByI: 128 << 20,
		Weights: 1 << 30, Gradients: 2 << 30, Optimizer: 6 << 30,
	}},
}

var rates = []struct {
	name   string
	perMiB int64 // in ns
}{{"400 GB/s", 1 << 20 / 400}, {"50 GB/s", 1 << 20 / 50}}

// step simulates a step at a shard level and a rate.
func step(t *testing.T, plan *schedule.Plan, replicas, level, gathered int, perMiB int64) *simulate.Report {
	var err error
	if level == schedule.ShardWeights {
		plan, err = lower.Shard(plan, gathered)
		require.NoError(t, err)
	}
	plan, err = lower.Reduce(plan, level)
	require.NoError(t, err)
	costs := documented
	costs.Replicas, costs.Shard, costs.ReplicaPerMiB = replicas, level, perMiB
	return reportOf(t, plan, &costs, schedule.Unlimited)
}

// TestDocumentedReplicas checks the simulated tables of docs/dev/measurements.md.
func TestDocumentedReplicas(t *testing.T) {
	text, err := os.ReadFile("../../docs/dev/measurements.md")
	require.NoError(t, err)
	row := func(format string, args ...any) {
		line := fmt.Sprintf(format, args...)
		require.Contains(t, string(text), "\n"+line+"\n")
	}
	ms := func(steps int64) string { return fmt.Sprintf("%.0f", float64(steps)/1e6) }
	gib := func(bytes int64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<30)) }
	rules := []struct {
		name    string
		rule    schedule.Rule
		perRank int
	}{{"interleaved", schedule.Interleaved, 4}, {"breadth-first", schedule.BreadthFirst, 4}}
	for _, s := range rules {
		plan := planned(t, s.rule, s.perRank, 64)
		for gathered := 1; gathered <= 4; gathered++ {
			fast, slow := step(t, plan, 8, 3, gathered, rates[0].perMiB), step(t, plan, 8, 3, gathered, rates[1].perMiB)
			row("| %s | %d | %d | %s | %s | %s | %s |", s.name, gathered, fast.Ranks[0].Unshards, gib(fast.Ranks[0].GatheredBytes), ms(fast.Step), ms(slow.Step), gib(fast.Ranks[0].Peak))
		}
	}

	for _, s := range append(rules, []struct {
		name    string
		rule    schedule.Rule
		perRank int
	}{{"1f1b", schedule.OneFOneB, 1}, {"zb-h1", schedule.ZBH1, 1}}...) {
		plan := planned(t, s.rule, s.perRank, 64)
		cells := fmt.Sprintf("| %s |", s.name)
		for _, rate := range rates {
			report := step(t, plan, 8, 1, 0, rate.perMiB)
			var reducing, own, all, last int64
			for _, r := range report.Ranks {
				last = max(last, r.Last)
			}
			for _, r := range report.Ranks {
				reducing, own = reducing+r.Reducing, own+r.ReduceWait
				all += max(0, r.Last+r.ReduceWait-last)
			}
			hidden := func(exposed int64) float64 { return 100 * float64(max(reducing-exposed, 0)) / float64(reducing) }
			cells += fmt.Sprintf(" %.0f %% | %.0f %% | %s |", hidden(own), hidden(all), ms(report.Step-last))
		}
		row("%s", cells)
	}

	plan := planned(t, schedule.Interleaved, 4, 64)
	for level := range 4 {
		r := step(t, plan, 4, level, 2, rates[0].perMiB).Ranks[7] // the last rank has few microbatches in flight
		row("| %d | %s | %s | %s | %s | %s |", level, gib(r.Classes[0]), gib(r.Classes[len(r.Classes)-1]), gib(r.Peak), gib(r.ReducedBytes), gib(r.GatheredBytes))
	}
}

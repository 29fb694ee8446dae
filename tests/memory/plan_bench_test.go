package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/stages/transformer"
)

// BenchmarkPrepare measures the time to plan a step of the model of examples/train, and the
// excess over the bound.
func BenchmarkPrepare(b *testing.B) {
	model := transformer.Config{Vocabulary: 256, Width: 48, Layers: 2, Heads: 4, Context: 32, Seed: 1, Untied: true}
	for _, s := range []setup{
		{schedule: "depth-first", ranks: 1, stages: 4, model: model},
		{schedule: "1f1b", ranks: 4, stages: 4, model: model, capacity: 1},
		{schedule: "zb-v", ranks: 4, stages: 8, model: model, capacity: 1},
		{schedule: "gpipe", ranks: 4, stages: 4, model: model, capacity: 1},
	} {
		b.Run(s.String(), func(b *testing.B) {
			profile := record(b, s, 1, 32)
			r := newRig(b, s, true)
			var gap float64
			for b.Loop() {
				cfg := r.cfg
				cfg.Memory.Profile = profile
				group, err := runner.New(cfg)
				require.NoError(b, err)
				plan, err := group.Prepare(b.Context(), 64, nil)
				require.NoError(b, err)
				for i := range plan.Ranks {
					gap = max(gap, plan.Ranks[i].Gap())
				}
			}
			b.ReportMetric(100*gap, "%gap")
		})
	}
}

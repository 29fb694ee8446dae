package check_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// BenchmarkSpeed measures every step from the name of a schedule to the simulated figures, for
// 4,096 microbatches written out and for a million in segments. The divisor of ns/action is the
// number of actions that a pass reads, counting every repeat.
func BenchmarkSpeed(b *testing.B) {
	for _, name := range []string{"1f1b", "interleaved", "zb1p", "zb-v"} {
		for _, ranks := range []int{16, 64} {
			for _, m := range []int{4096, 1_000_000} {
				b.Run(fmt.Sprintf("%s/P=%d/M=%d", name, ranks, m), func(b *testing.B) { speed(b, name, ranks, m) })
			}
		}
	}
}

func speed(b *testing.B, name string, ranks, m int) {
	s, err := schedule.Find(name)
	require.NoError(b, err)
	place, err := s.Place(ranks, ranks*s.PerRank)
	require.NoError(b, err)
	params := schedule.Params{Placement: place, Microbatches: m}
	plan, err := s.Rule(params)
	require.NoError(b, err)
	lowered, err := lower.Transfers(plan, 1)
	require.NoError(b, err)
	if m == 4096 {
		plan, lowered = plantest.Expand(plan), plantest.Expand(lowered)
	}
	costs := &simulate.Costs{Latency: 3, Stages: []simulate.StageCosts{{F: 10, I: 10, W: 9, Saved: 1, Output: 1, Gradient: 1}}}
	pass := func(what string, of *schedule.Plan, run func() error) {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, run())
			}
			var actions int64
			for rank := range of.Programs {
				actions += of.Actions(rank)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(actions), "ns/action")
		})
	}
	pass("build", plan, func() error { _, err := s.Rule(params); return err })
	pass("lower", plan, func() error { _, err := lower.Transfers(plan, 1); return err })
	pass("lifetimes", lowered, func() error { _, err := lower.Lifetimes(lowered, readingFacts(&s, place), 3); return err })
	pass("check", lowered, func() error { return check.Links(lowered, 1) })
	pass("simulate", lowered, func() error { _, err := simulate.Run(lowered, costs, 1); return err })
}

// readingFacts returns the facts of a model that reads part 0 in its first stage, and parts 1 and 2
// in the forward and backward of its last stage.
func readingFacts(s *schedule.Schedule, place schedule.Placement) []schedule.StageInfo {
	facts := make([]schedule.StageInfo, place.Stages())
	for stage := range facts {
		facts[stage].Split = s.Split
		if place.First(stage) {
			facts[stage].Reads[schedule.F] |= 1
		}
		if place.Last(stage) {
			for _, kind := range []schedule.Kind{schedule.F, schedule.B, schedule.I} {
				facts[stage].Reads[kind] |= 6
			}
		}
	}
	return facts
}

package schedule_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

// languageModel returns facts of stages of which the first reads part 0 in its
// forward and the last parts 1 and 2 in forward and backward.
func languageModel(stages int) []schedule.Facts {
	facts := make([]schedule.Facts, stages)
	facts[0].Reads[schedule.F] |= 1
	facts[stages-1].Reads[schedule.F] |= 6
	facts[stages-1].Reads[schedule.B] |= 6
	return facts
}

// build makes a plan, runs the lifetime pass and checks the result.
func build(t require.TestingT, rule schedule.Rule, stages, microbatches, group int) *schedule.Plan {
	plan, err := rule(schedule.Params{Placement: schedule.Looped(1, stages), Microbatches: microbatches, Group: group})
	require.NoError(t, err)
	plan, err = schedule.Lifetimes(plan, languageModel(stages), 3)
	require.NoError(t, err)
	require.NoError(t, schedule.Check(plan))
	return plan
}

func BenchmarkDepthFirst(b *testing.B) {
	for _, microbatches := range []int{8, 1_000_000} {
		b.Run(fmt.Sprint("M=", microbatches), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				build(b, schedule.DepthFirst, 4, microbatches, 1)
			}
		})
	}
}

func BenchmarkBreadthFirst(b *testing.B) {
	for _, microbatches := range []int{8, 1_000_000} {
		b.Run(fmt.Sprint("M=", microbatches), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				build(b, schedule.BreadthFirst, 4, microbatches, 0)
			}
		})
	}
}

// BenchmarkCheckList checks a plan that is written out: the cost per action.
func BenchmarkCheckList(b *testing.B) {
	plan := expand(build(b, schedule.DepthFirst, 4, 10_000, 1))
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, schedule.Check(plan))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(plan.Actions(0)), "ns/action")
}

// pipelined returns a plan of several ranks with two stages each, with its transfers
// where they are asked for.
func pipelined(t require.TestingT, rule schedule.Rule, ranks, microbatches int, transfers bool) *schedule.Plan {
	plan, err := rule(schedule.Params{Placement: schedule.Looped(ranks, 2*ranks), Microbatches: microbatches})
	require.NoError(t, err)
	if transfers {
		plan, err = schedule.Comms(plan, schedule.Unlimited)
		require.NoError(t, err)
	}
	return plan
}

// BenchmarkCheckRanks checks plans on several ranks, written out and as segments.
func BenchmarkCheckRanks(b *testing.B) {
	for _, rule := range []struct {
		name string
		rule schedule.Rule
	}{{"interleaved", schedule.Interleaved}, {"breadth-first", schedule.BreadthFirst}} {
		for _, ranks := range []int{16, 64} {
			for _, transfers := range []bool{false, true} {
				name := fmt.Sprintf("%s/P=%d/transfers=%v", rule.name, ranks, transfers)
				b.Run(name+"/list/M=4096", func(b *testing.B) {
					benchmarkCheck(b, expand(pipelined(b, rule.rule, ranks, 4096, transfers)))
				})
				b.Run(name+"/segments/M=1000000", func(b *testing.B) {
					benchmarkCheck(b, pipelined(b, rule.rule, ranks, 1_000_000, transfers))
				})
			}
		}
	}
}

func benchmarkCheck(b *testing.B, plan *schedule.Plan) {
	proof, err := schedule.Prove(plan, schedule.Unlimited)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, err = schedule.Prove(plan, schedule.Unlimited)
	}
	require.NoError(b, err)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(proof.Visited), "ns/visit")
	b.ReportMetric(float64(proof.Visited), "visits")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(proof.Actions), "ns/action")
}

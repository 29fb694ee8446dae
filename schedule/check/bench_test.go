package check_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/internal/plantest"
)

func BenchmarkDepthFirst(b *testing.B) {
	for _, microbatches := range []int{8, 1_000_000} {
		b.Run(fmt.Sprint("M=", microbatches), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plantest.Build(b, schedule.DepthFirst, 4, microbatches, 1)
			}
		})
	}
}

func BenchmarkBreadthFirst(b *testing.B) {
	for _, microbatches := range []int{8, 1_000_000} {
		b.Run(fmt.Sprint("M=", microbatches), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plantest.Build(b, schedule.BreadthFirst, 4, microbatches, 0)
			}
		})
	}
}

// BenchmarkCheckList measures the cost per action of checking a plan that is written out.
func BenchmarkCheckList(b *testing.B) {
	plan := plantest.Expand(plantest.Build(b, schedule.DepthFirst, 4, 10_000, 1))
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, check.Plan(plan))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(plan.Actions(0)), "ns/action")
}

// BenchmarkCheckRanks checks plans for several ranks, both written out and as segments.
func BenchmarkCheckRanks(b *testing.B) {
	for _, rule := range []struct {
		name string
		rule schedule.Rule
	}{{"interleaved", schedule.Interleaved}, {"breadth-first", schedule.BreadthFirst}} {
		for _, ranks := range []int{16, 64} {
			for _, transfers := range []bool{false, true} {
				name := fmt.Sprintf("%s/P=%d/transfers=%v", rule.name, ranks, transfers)
				b.Run(name+"/list/M=4096", func(b *testing.B) {
					benchmarkCheck(b, plantest.Expand(plantest.Pipelined(b, rule.rule, ranks, 4096, transfers)))
				})
				b.Run(name+"/segments/M=1000000", func(b *testing.B) {
					benchmarkCheck(b, plantest.Pipelined(b, rule.rule, ranks, 1_000_000, transfers))
				})
			}
		}
	}
}

func benchmarkCheck(b *testing.B, plan *schedule.Plan) {
	proof, err := check.Prove(plan, schedule.Unlimited)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, err = check.Prove(plan, schedule.Unlimited)
	}
	require.NoError(b, err)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(proof.Visited), "ns/visit")
	b.ReportMetric(float64(proof.Visited), "visits")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(proof.Actions), "ns/action")
}

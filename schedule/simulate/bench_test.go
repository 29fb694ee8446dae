package simulate_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/plantest"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// BenchmarkSimulate simulates the interleaved schedule with two stages per rank, as plain lists,
// and reports the time per action. In the variants with transfers, each computation has its sends,
// receives and waits.
func BenchmarkSimulate(b *testing.B) {
	for _, ranks := range []int{16, 64} {
		p, err := schedule.Interleaved(schedule.Params{Placement: schedule.Looped(ranks, 2*ranks), Microbatches: 4096})
		require.NoError(b, err)
		lowered, err := lower.Transfers(p, schedule.Unlimited)
		require.NoError(b, err)
		b.Run(fmt.Sprint("P=", ranks), func(b *testing.B) { benchmarkSimulate(b, plantest.Expand(p)) })
		b.Run(fmt.Sprint("P=", ranks, "/transfers"), func(b *testing.B) { benchmarkSimulate(b, plantest.Expand(lowered)) })
	}
}

// BenchmarkSimulateSegmented simulates the interleaved schedule in segments, for a million
// microbatches.
func BenchmarkSimulateSegmented(b *testing.B) {
	for _, ranks := range []int{16, 64} {
		p, err := schedule.Interleaved(schedule.Params{Placement: schedule.Looped(ranks, 2*ranks), Microbatches: 1_000_000})
		require.NoError(b, err)
		b.Run(fmt.Sprint("P=", ranks), func(b *testing.B) { benchmarkSimulate(b, p) })
	}
}

func benchmarkSimulate(b *testing.B, p *schedule.Plan) {
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 18522, I: 18086, W: 9337, Saved: 1 << 30}}, Latency: 601}
	var actions int64
	for rank := range p.Programs {
		actions += p.Actions(rank)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, err := simulate.Run(p, costs, schedule.Unlimited)
		require.NoError(b, err)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(actions), "ns/action")
}

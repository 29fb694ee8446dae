package lower_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/plantest"
	"github.com/weir-ml/weir/schedule/lower"
)

// BenchmarkPasses runs the passes on plans with two stages per rank, written out and as segments.
// ns/action is relative to the number of actions in the result.
func BenchmarkPasses(b *testing.B) {
	passes := []struct {
		name string
		sent bool // the pass takes a plan with transfers
		run  func(p *schedule.Plan) (*schedule.Plan, error)
	}{
		{"Comms", false, func(p *schedule.Plan) (*schedule.Plan, error) { return lower.Transfers(p, schedule.Unlimited) }},
		{"CommsRendezvous", false, func(p *schedule.Plan) (*schedule.Plan, error) { return lower.Transfers(p, 0) }},
		{"Lifetimes", true, func(p *schedule.Plan) (*schedule.Plan, error) {
			return lower.Lifetimes(p, make([]schedule.Facts, p.Placement.Stages()), 0)
		}},
		{"Shard", false, func(p *schedule.Plan) (*schedule.Plan, error) { return lower.Shard(p, 3) }},
		{"Split", false, func(p *schedule.Plan) (*schedule.Plan, error) { return lower.Split(p), nil }},
	}
	for _, pass := range passes {
		for _, ranks := range []int{16, 64} {
			for _, microbatches := range []int{4096, 1_000_000} {
				form := "list"
				p := plantest.Pipelined(b, schedule.Interleaved, ranks, microbatches, pass.sent)
				if microbatches > 4096 {
					form = "segments"
				} else {
					p = plantest.Expand(p)
				}
				b.Run(fmt.Sprintf("%s/P=%d/%s/M=%d", pass.name, ranks, form, microbatches), func(b *testing.B) {
					var got *schedule.Plan
					var err error
					b.ReportAllocs()
					for b.Loop() {
						got, err = pass.run(p)
					}
					require.NoError(b, err)
					actions, written := int64(0), 0
					for rank, program := range got.Programs {
						actions += got.Actions(rank)
						for _, s := range program {
							written += len(s.Body)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(actions), "ns/action")
					b.ReportMetric(float64(written), "written")
				})
			}
		}
	}
}

package simulate_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// simulated makes a plan of a rule with one stage a rank and simulates it.
func simulated(t *testing.T, rule schedule.Rule, ranks, microbatches int, costs *simulate.Costs) *simulate.Report {
	p, err := rule(schedule.Params{Placement: schedule.Looped(ranks, ranks), Microbatches: microbatches})
	require.NoError(t, err)
	report, err := simulate.Run(p, costs, schedule.Unlimited)
	require.NoError(t, err)
	return report
}

// TestZeroBubbleTable reproduces the bubble rates of 1F1B and ZB-1p that "Zero Bubble
// Pipeline Parallelism" (Qi et al., 2023) gives, to all four digits, from its profiled
// times in milliseconds. They are of the span: its optimizer waits for no other rank.
func TestZeroBubbleTable(t *testing.T) {
	for _, test := range []struct {
		model         string
		ranks, m      int
		f, i, w, hop  int64
		oneF, zeroOne string
	}{
		{"1.5B", 8, 24, 18522, 18086, 9337, 601, "0.2431", "0.1585"},
		{"1.5B", 8, 32, 18522, 18086, 9337, 601, "0.1978", "0.1238"},
		{"1.5B", 8, 64, 18522, 18086, 9337, 601, "0.1187", "0.0660"},
		{"6.2B", 8, 24, 29718, 29444, 19927, 527, "0.2347", "0.1323"},
		{"6.2B", 8, 32, 29718, 29444, 19927, 527, "0.1889", "0.1026"},
		{"6.2B", 8, 64, 29718, 29444, 19927, 527, "0.1090", "0.0541"},
		{"14.6B", 16, 48, 11347, 11248, 8132, 377, "0.2552", "0.1397"},
		{"28.3B", 32, 96, 10419, 10207, 7715, 408, "0.2646", "0.1421"},
	} {
		t.Run(fmt.Sprint(test.model, " M=", test.m), func(t *testing.T) {
			costs := &simulate.Costs{Unit: "ms", Scale: 1000, Latency: test.hop,
				Stages: []simulate.StageCosts{{F: test.f, I: test.i, W: test.w, Saved: 2, FreedByI: 1}}}
			oneF := simulated(t, schedule.OneFOneB, test.ranks, test.m, costs)
			require.Equal(t, test.oneF, fmt.Sprintf("%.4f", oneF.BubbleSpan()))
			zeroOne := simulated(t, schedule.ZBH1, test.ranks, test.m, costs)
			require.Equal(t, test.zeroOne, fmt.Sprintf("%.4f", zeroOne.BubbleSpan()))
			for rank := range test.ranks {
				require.EqualValues(t, test.ranks-rank, oneF.Ranks[rank].InFlight)
				require.EqualValues(t, 2*(test.ranks-rank), oneF.Ranks[rank].Peak)
				require.EqualValues(t, test.ranks, zeroOne.Ranks[rank].InFlight)
				require.EqualValues(t, 2*test.ranks-rank, zeroOne.Ranks[rank].Peak)
			}
		})
	}
}

// TestBubbles demands the bubbles that schedules are known for.
func TestBubbles(t *testing.T) {
	const f, i, w = 3, 5, 2
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: f, I: i, W: w}}}
	for _, ranks := range []int{1, 2, 4, 8, 16} {
		for _, m := range []int{ranks, 2*ranks + 1, 64} {
			oneF := simulated(t, schedule.OneFOneB, ranks, m, costs)
			require.EqualValues(t, m*(f+i+w), oneF.Ideal)
			require.EqualValues(t, (ranks-1)*(f+i+w), oneF.Makespan-oneF.Ideal)
			require.Equal(t, oneF.Makespan, oneF.Span)
			all := simulated(t, schedule.GPipe, ranks, m, costs)
			require.Equal(t, oneF.Makespan, all.Makespan)
			require.EqualValues(t, m, all.Ranks[0].InFlight)
			zero := simulated(t, schedule.ZBH1, ranks, m, costs)
			require.EqualValues(t, (ranks-1)*(f+i-w), zero.Makespan-zero.Ideal)
		}
	}
}

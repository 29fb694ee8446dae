package simulate_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// simulated simulates the plan of a rule with one stage per rank.
func simulated(t *testing.T, rule schedule.Rule, ranks, microbatches int, costs *simulate.Costs) *simulate.Report {
	return reportOf(t, plantest.Made(t, rule, schedule.Params{Placement: schedule.Looped(ranks, ranks), Microbatches: microbatches}), costs, schedule.Unlimited)
}

// TestZeroBubbleTable reproduces the bubble rates of 1F1B and ZB-1p that "Zero Bubble Pipeline
// Parallelism" (Qi et al., 2023) gives, to all four digits, from its profiled times in
// milliseconds. The rates are fractions of the span, because the paper's optimizer does not wait for other ranks.
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

// TestBubbles requires the published bubbles of schedules.
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

// TestOffloadCriterion reproduces the criterion of "PipeOffload" (Wan et al., 2025): all saved
// state can be offloaded at no cost if k, the time of its copies divided by the time of its
// computations, is at most 1. The paper assumes one stream that copies in both directions alternately,
// so each direction has half of the rate of the link. In 1F1B each microbatch takes max(1, k)
// times as long for any overlap of at least 2, and the peak does not depend on the number of ranks.
func TestOffloadCriterion(t *testing.T) {
	const compute, microbatches = 3_000_000, 64
	for _, test := range []struct {
		hidden, sequence float64
		k                string
	}{
		{4096, 4096, "1.71"}, {5120, 4096, "1.40"}, {8192, 4096, "0.92"}, {8192, 16384, "0.75"}, {4096, 16384, "1.19"},
	} {
		const flops, rate = 220e12, 15e9 // per second; bytes per second
		k := 10 / (3 * (6*test.hidden + test.sequence)) * flops / rate
		require.Equal(t, test.k, fmt.Sprintf("%.2f", k))
		costs := &simulate.Costs{FarPerMiB: int64(k * compute), Stages: []simulate.StageCosts{{F: compute / 3, I: compute / 3, W: compute / 3, Saved: 1 << 20}}}
		for _, ranks := range []int{8, 16} {
			for overlap, peak := range map[int]int64{0: int64(ranks), 2: 4, 3: 6} {
				var makespans [2]int64
				for i, m := range []int{microbatches, 2 * microbatches} {
					plan := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(ranks, ranks), Microbatches: m})
					if overlap > 0 {
						var err error
						plan, err = lower.Offload(plan, slices.Repeat([]uint64{1}, ranks), overlap)
						require.NoError(t, err)
					}
					report := reportOf(t, plan, costs, schedule.Unlimited)
					makespans[i] = report.Makespan
					require.Equal(t, peak<<20, report.Ranks[0].Peak)
					if overlap == 0 || k <= 1 {
						require.EqualValues(t, (m+ranks-1)*compute, report.Makespan)
					}
				}
				want := 1.0
				if overlap > 0 {
					want = max(1, k)
				}
				require.InDelta(t, want, float64(makespans[1]-makespans[0])/(microbatches*compute), 1e-6, "k %s, overlap %d", test.k, overlap)
			}
		}
	}
}

// If all stages are offloaded, the peaks of 1F1B and interleaved do not grow with the number of
// ranks, and copies that take a third of a microbatch's computing time delay no action.
func TestOffloadedPeaks(t *testing.T) {
	costs := &simulate.Costs{FarPerMiB: 6, Stages: []simulate.StageCosts{{F: 6, I: 6, W: 6, Saved: 1 << 20}}}
	for _, test := range []struct {
		name             string
		ranks            int
		near, half, away int64 // peaks in microbatches of a stage, with the first half of the stages offloaded, and with all
	}{
		{"1f1b", 4, 4, 3, 3}, {"1f1b", 8, 8, 4, 3}, {"1f1b", 16, 16, 8, 3},
		{"interleaved", 4, 11, 6, 3}, {"interleaved", 8, 23, 10, 3}, {"interleaved", 16, 47, 18, 3},
	} {
		s, place := plantest.Find(t, test.name, test.ranks, 0)
		plan := plantest.Made(t, s.Rule, schedule.Params{Placement: place, Microbatches: 4 * test.ranks})
		plain := reportOf(t, plan, costs, schedule.Unlimited)
		for stages, want := range map[int]int64{0: test.near, place.Stages() / 2: test.half, place.Stages(): test.away} {
			away := slices.Concat(slices.Repeat([]uint64{1}, stages), make([]uint64, place.Stages()-stages))
			offloaded, err := lower.Offload(plan, away, 1)
			require.NoError(t, err)
			report := reportOf(t, offloaded, costs, schedule.Unlimited)
			var peak int64
			for _, rank := range report.Ranks {
				peak = max(peak, rank.Peak>>20)
			}
			require.Equal(t, want, peak, "%s, %d ranks, %d stages", test.name, test.ranks, stages)
			require.Equal(t, plain.Makespan, report.Makespan)
		}
	}
}

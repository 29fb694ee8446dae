package published_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// profiles lists the models of the zero-bubble paper, with the profiled times of F, I, W and a hop in
// microseconds, and the bubbles in its table, which refer to the span.
var profiles = []struct {
	model        string
	ranks        int
	f, i, w, hop int64
	microbatches []int
	oneF, zb1    []float64
}{
	{"1.5B", 8, 18522, 18086, 9337, 601, []int{24, 32, 64},
		[]float64{0.2431, 0.1978, 0.1187}, []float64{0.1585, 0.1238, 0.0660}},
	{"6.2B", 8, 29718, 29444, 19927, 527, []int{24, 32, 64},
		[]float64{0.2347, 0.1889, 0.1090}, []float64{0.1323, 0.1026, 0.0541}},
	{"14.6B", 16, 11347, 11248, 8132, 377, []int{48}, []float64{0.2552}, []float64{0.1397}},
	{"28.3B", 32, 10419, 10207, 7715, 408, []int{96}, []float64{0.2646}, []float64{0.1421}},
}

// bubble returns the bubble of a schedule with one stage per rank.
func bubble(t *testing.T, name string, ranks, microbatches int, f, i, w, hop int64) float64 {
	t.Helper()
	named, err := schedule.Find(name)
	require.NoError(t, err)
	place, err := named.Place(ranks, ranks)
	require.NoError(t, err)
	plan, err := named.Rule(schedule.Params{Placement: place, Microbatches: microbatches})
	require.NoError(t, err)
	r, err := simulate.Run(plan, &simulate.Costs{Latency: hop, Stages: []simulate.StageCosts{{F: f, I: i, W: w}}}, schedule.Unlimited)
	require.NoError(t, err)
	return r.BubbleSpan()
}

func TestZeroBubbleTable(t *testing.T) {
	for _, p := range profiles {
		for k, m := range p.microbatches {
			four := func(v float64) float64 { return math.Round(v*1e4) / 1e4 }
			require.Equal(t, p.oneF[k], four(bubble(t, "1f1b", p.ranks, m, p.f, p.i, p.w, p.hop)), "%s, %d microbatches, 1F1B", p.model, m)
			require.Equal(t, p.zb1[k], four(bubble(t, "zb-h1", p.ranks, m, p.f, p.i, p.w, p.hop)), "%s, %d microbatches, ZB-1p", p.model, m)
		}
	}
}

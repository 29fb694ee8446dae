package published_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/simulate"
)

// profiles are the models of the zero-bubble paper: profiled times in microseconds of F, I, W
// and a hop, and the bubbles of its table, by the span.
var profiles = []struct {
	model          string
	ranks          int
	f, i, w, hop   int64
	microbatches   []int
	oneF, zb1, zb2 []float64
}{
	{"1.5B", 8, 18522, 18086, 9337, 601, []int{24, 32, 64},
		[]float64{0.2431, 0.1978, 0.1187}, []float64{0.1585, 0.1238, 0.0660}, []float64{0.0433, 0.0036, 0.0018}},
	{"6.2B", 8, 29718, 29444, 19927, 527, []int{24, 32, 64},
		[]float64{0.2347, 0.1889, 0.1090}, []float64{0.1323, 0.1026, 0.0541}, []float64{0.0029, 0.0022, 0.0011}},
	{"14.6B", 16, 11347, 11248, 8132, 377, []int{48}, []float64{0.2552}, []float64{0.1397}, []float64{0.0066}},
	{"28.3B", 32, 10419, 10207, 7715, 408, []int{96}, []float64{0.2646}, []float64{0.1421}, []float64{0.0038}},
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

const zeroBubbleIntroduction = "\n## The zero-bubble paper's table\n\n" +
	"Bubbles of the span for four models with their profiled times and hop latencies. A test compares the columns 1f1b and zb-h1 with the paper's to four digits. ZB-2p is the paper's automatic search with twice the memory of 1F1B; zb-h2 here is a fixed rule with nearly that memory (2P-1 in flight) and is not meant to be the same.\n\n" +
	"| model | P | M | 1f1b | paper | zb-h1 | paper, ZB-1p | zb-h2 | paper, ZB-2p |\n|---|---|---|---|---|---|---|---|---|\n"

func zeroBubbleRows(t *testing.T, b *bytes.Buffer) {
	for _, p := range profiles {
		for k, m := range p.microbatches {
			of := func(name string) float64 { return bubble(t, name, p.ranks, m, p.f, p.i, p.w, p.hop) }
			fmt.Fprintf(b, "| %s | %d | %d | %.4f | %.4f | %.4f | %.4f | %.4f | %.4f |\n",
				p.model, p.ranks, m, of("1f1b"), p.oneF[k], of("zb-h1"), p.zb1[k], of("zb-h2"), p.zb2[k])
		}
	}
}

package published_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/simulate"
)

const docs = "../../docs"

// plan returns the plan of a form and the costs of one unit for F, I and W each.
func (f *form) plan(t *testing.T, ranks, microbatches int) (*schedule.Plan, *simulate.Costs) {
	t.Helper()
	named, err := schedule.Find(f.name)
	require.NoError(t, err)
	params := schedule.Params{Microbatches: microbatches}
	params.Placement, err = named.Place(ranks, f.perRank*ranks)
	require.NoError(t, err)
	if f.params != nil {
		params.Group, params.Cap, params.Slices = f.params(ranks)
	}
	plan := plantest.Made(t, named.Rule, params)
	require.NoError(t, check.Plan(plan))
	part := unit / int64(f.perRank)
	return plan, &simulate.Costs{Scale: unit, Stages: []simulate.StageCosts{{F: part, I: part, W: part, Saved: part}}}
}

// unit is the number of time units, or bytes, of one published unit.
const unit = 12

var sizes = []int{4, 8, 16}

// simulated is the result of the simulator for a form.
type simulated struct {
	ranks, microbatches  int
	lost, spanLost, peak float64
	*simulate.Report
}

func (f *form) simulate(t *testing.T, ranks int) simulated {
	t.Helper()
	microbatches := 4 * ranks
	plan, costs := f.plan(t, ranks, microbatches)
	r, err := simulate.Run(plan, costs, schedule.Unlimited)
	require.NoError(t, err)
	s := simulated{ranks: ranks, microbatches: microbatches, Report: r}
	s.lost, s.spanLost = float64(r.Makespan-r.Ideal)/unit, float64(r.Span-r.Ideal)/unit
	for _, rank := range r.Ranks {
		s.peak = max(s.peak, float64(rank.Peak)/unit)
	}
	return s
}

func TestClosedForms(t *testing.T) {
	require.Len(t, forms, len(schedule.Schedules()))
	for i, f := range forms {
		require.Equal(t, schedule.Schedules()[i].Name, f.name)
		for _, ranks := range sizes {
			s := f.simulate(t, ranks)
			p, v := float64(ranks), float64(f.perRank)
			require.Equal(t, f.lostOf(p, v), s.lost, "%s on %d ranks: time lost", f.name, ranks)
			require.Equal(t, f.peakOf(p, v, float64(s.microbatches)), s.peak, "%s on %d ranks: peak", f.name, ranks)
			span := f.lostOf
			if f.spanOf != nil {
				span = f.spanOf
			}
			require.Equal(t, span(p, v), s.spanLost, "%s on %d ranks: time lost of the span", f.name, ranks)
		}
	}
}

// TestDocument compares docs/schedules.md and its pictures with the simulator.
func TestDocument(t *testing.T) {
	files := map[string][]byte{"schedules.md": document(t)}
	for _, f := range forms {
		plan, costs := f.plan(t, 4, 8)
		costs.Stages[0].Saved = 0 // the pictures show microbatches, not bytes
		step, err := draw.Simulate(plan, costs, schedule.Unlimited)
		require.NoError(t, err)
		var picture bytes.Buffer
		require.NoError(t, step.SVG(&picture))
		files["schedules/"+f.name+".svg"] = picture.Bytes()
	}
	for name, content := range files {
		path := filepath.Join(docs, name)
		if *testkit.Update {
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
			require.NoError(t, os.WriteFile(path, content, 0o644))
		}
		have, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(content), string(have), "%s: go test ./tests/published -update writes it", name)
	}
}

func document(t *testing.T) []byte {
	var b bytes.Buffer
	b.WriteString(introduction)
	for _, f := range forms {
		s := f.simulate(t, 8)
		fmt.Fprintf(&b, "| [%s](#%s) | %d | %g | %.2f %% | %.2f %% | %g |\n", f.name, f.name, f.perRank, s.lost, 100*s.BubbleMakespan(), 100*s.BubbleSpan(), s.peak)
	}
	for _, f := range forms {
		fmt.Fprintf(&b, "\n## %s\n\n%s Published: time lost %s; peak %s. From: %s.\n\n![%s on 4 ranks](schedules/%s.svg)\n",
			f.name, strings.TrimSpace(f.rule+" "+f.notes), f.published(), f.peak, f.source, f.name, f.name)
	}
	return b.Bytes()
}

func (f *form) published() string {
	if f.spanLost == "" {
		return f.lost
	}
	return f.lost + " in the makespan and " + f.spanLost + " in the span"
}

const introduction = "# The schedules\n\n" +
	"To find the best schedule for your costs, let `weir choose` try them all; to see one, run `weir draw NAME -o NAME.svg`. " +
	"This page compares them at equal costs. Every number in the table comes from the simulator, and equals the published formula or number (`tests/published`).\n\n" +
	"There are P ranks with V stages each, and M microbatches. F, I and W are the times of a forward, an input gradient and a weight gradient of one microbatch on a rank; B = I + W; F&B is the time of an overlapped forward and backward. " +
	"The makespan is the time from the first start to the last end over all ranks; the span is the longest time from the first start to the last end on one rank. Time lost is the makespan minus the busiest rank's work; a bubble is the part of the makespan or the span beyond this work, in percent of the whole. " +
	"A peak is the most that a rank holds of saved tensors, which W frees, in units of what one microbatch saves in all stages of the rank.\n\n" +
	"The table is for 8 ranks, 32 microbatches, F = I = W = 1, F&B = 3 and messages that take no time; the pictures are for 4 ranks and 8 microbatches:\n\n" +
	"| schedule | V | time lost | bubble, makespan | bubble, span | peak |\n|---|--:|--:|--:|--:|--:|\n"

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
	plan := plantest.Named(t, name, ranks, ranks, microbatches)
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

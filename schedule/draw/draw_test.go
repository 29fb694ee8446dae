package draw_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/draw"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// ticks are costs without bytes: one tick for each of F, I and W.
var ticks = &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1}}}

// milliseconds are costs with bytes and with transfers that take time.
var milliseconds = &simulate.Costs{Unit: "ms", Scale: 1000, Latency: 250, PerMiB: 10, Resident: []int64{7 << 20, 8 << 20, 9 << 20, 1 << 30},
	Stages: []simulate.StageCosts{{F: 1500, I: 1400, W: 900, Joined: 3100, Saved: 40 << 20, FreedByI: 12 << 20, Carry: 3 << 20, Output: 5 << 20, Gradient: 4 << 20}}}

// steps returns the steps that the tests draw.
func steps(t *testing.T) map[string]*draw.Step {
	all := map[string]*draw.Step{}
	for _, made := range []struct {
		name  string
		rule  schedule.Rule
		place schedule.Placement
		mode  schedule.Mode
		m     int
	}{
		{"one", schedule.OneFOneB, schedule.Looped(1, 1), schedule.Training, 1},
		{"1f1b", schedule.OneFOneB, schedule.Looped(4, 4), schedule.Training, 6},
		{"forward", schedule.GPipe, schedule.Looped(4, 8), schedule.ForwardOnly, 5},
		{"interleaved", schedule.Interleaved, schedule.Looped(4, 12), schedule.Training, 120},
		{"zb-v", schedule.ZBV, schedule.Wave(4, 8), schedule.Training, 7},
		{"dualpipev", schedule.DualPipeV, schedule.Wave(4, 8), schedule.Training, 10},
		{"dualpipe", schedule.DualPipe, schedule.Bidirectional(4), schedule.Training, 16},
	} {
		plan := plantest.Made(t, made.rule, schedule.Params{Placement: made.place, Mode: made.mode, Microbatches: made.m})
		plain := simulated(t, plan, ticks, schedule.Unlimited)
		all[made.name] = plain
		if made.place.Ranks == 4 {
			full := simulated(t, plan, milliseconds, schedule.Unlimited)
			all[made.name+" in bytes"] = full
		}
	}
	return all
}

func picture(t *testing.T, s *draw.Step) string {
	var b strings.Builder
	require.NoError(t, s.SVG(&b))
	return b.String()
}

func trace(t *testing.T, s *draw.Step) string {
	var b strings.Builder
	require.NoError(t, s.Trace(&b))
	return b.String()
}

// TestGoldens compares two small pictures and their traces with stored bytes. Look at the output of -update before you
// keep it.
func TestGoldens(t *testing.T) {
	for name, made := range map[string]struct {
		rule  schedule.Rule
		place schedule.Placement
		costs *simulate.Costs
	}{
		"1f1b":      {schedule.OneFOneB, schedule.Looped(2, 2), ticks},
		"dualpipev": {schedule.DualPipeV, schedule.Wave(2, 4), milliseconds},
	} {
		plan := plantest.Made(t, made.rule, schedule.Params{Placement: made.place, Microbatches: 4})
		costs := *made.costs
		costs.Resident = costs.Resident[:min(len(costs.Resident), 2)]
		step := simulated(t, plan, &costs, schedule.Unlimited)
		for ending, text := range map[string]string{".svg": picture(t, step), ".trace.json": trace(t, step)} {
			path := filepath.Join("testdata", name+ending)
			testkit.Golden(t, path, text)
		}
	}
}

// TestLegendFits: a picture is wide enough for its legend, even if the step is short.
func TestLegendFits(t *testing.T) {
	plan := plantest.Made(t, schedule.DualPipe, schedule.Params{Placement: schedule.Bidirectional(2), Microbatches: 4})
	step := simulated(t, plan, ticks, schedule.Unlimited)
	text := picture(t, step)
	var width, last float64
	_, err := fmt.Sscanf(text, `<svg xmlns="http://www.w3.org/2000/svg" width="%f"`, &width)
	require.NoError(t, err)
	const words = "microbatches in flight on the rank"
	before, _, found := strings.Cut(text, ">"+words+"<")
	require.True(t, found)
	_, err = fmt.Sscanf(before[strings.LastIndex(before, `x="`):], `x="%f"`, &last)
	require.NoError(t, err)
	require.Less(t, last+5.7*float64(len(words)), width)
}

// TestPictures: a picture is XML, has one box for each computation, and gives the figures of the
// simulation.
func TestPictures(t *testing.T) {
	for name, step := range steps(t) {
		text := picture(t, step)
		require.Equal(t, text, picture(t, step), name)
		boxes := map[string]int{}
		decoder := xml.NewDecoder(strings.NewReader(text))
		for {
			token, err := decoder.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err, name)
			if chars, ok := token.(xml.CharData); ok {
				word, times, _ := strings.Cut(string(chars), ", ")
				if strings.Contains(times, " to ") {
					boxes[word]++
				}
			}
		}
		for _, events := range step.Events {
			for _, e := range events {
				require.Equal(t, 1, boxes[e.Action.String()], "%s: %v", name, e.Action)
			}
		}

		costs := ticks
		if step.Unit != "" {
			costs = milliseconds
		}
		report, err := simulate.Run(step.Plan, costs, schedule.Unlimited)
		require.NoError(t, err)
		require.Contains(t, text, fmt.Sprintf("bubble %.1f %% (%.1f %% of the span)",
			100*report.BubbleMakespan(), 100*report.BubbleSpan()), name)
		require.Contains(t, text, "makespan "+short(float64(report.Makespan)/float64(max(step.Scale, 1)), 3)+" ", name)
	}
}

// short returns a number as text, with at most this many decimals.
func short(x float64, decimals int) string {
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.*f", decimals, x)+" ", "0 "), ".")
}

// TestPeaks: peaks are those of the simulation; without bytes they are microbatches in
// flight.
func TestPeaks(t *testing.T) {
	all := steps(t)
	for name, want := range map[string][]string{
		"1f1b":        {"peak 4", "peak 3", "peak 2", "peak 1", "peak 4 microbatches in flight on rank 0"},
		"one":         {"peak 1", "peak 1 microbatch in flight on rank 0"},
		"interleaved": {"peak 5", "peak 4.33", "peak 5 microbatches in flight on rank 0"},
		"dualpipe":    {"peak 4", "peak 5", "peak 5 microbatches in flight on rank 1"},
		"zb-v":        {"peak 4", "peak 4 microbatches in flight on rank 0"},
	} {
		for _, text := range want {
			require.Regexp(t, `[^0-9a-z]`+text+`[^0-9a-z]`, picture(t, all[name]), name)
		}
	}
	require.NotContains(t, picture(t, all["forward"]), "peak ")
	step := all["dualpipev in bytes"]
	report, err := simulate.Run(step.Plan, milliseconds, schedule.Unlimited)
	require.NoError(t, err)
	for rank, r := range report.Ranks {
		require.Equal(t, r.Peak, step.Peaks[rank])
	}
	require.Contains(t, picture(t, step), "on rank 3")
}

// TestTraces: a trace is JSON. In each track events are in order of time and boxes do not
// overlap, each arrow has two ends, and the last counter of a rank shows the bytes of its last
// event.
func TestTraces(t *testing.T) {
	for name, step := range steps(t) {
		text := trace(t, step)
		require.Equal(t, text, trace(t, step))
		var read struct {
			TraceEvents []struct {
				Ph, Name, Cat string
				Pid, Tid, ID  int
				Ts, Dur       float64
				Args          map[string]any
			}
		}
		require.NoError(t, json.Unmarshal([]byte(text), &read), name)
		type track struct {
			ph       string
			pid, tid int
		}
		last := map[track]float64{}
		ends := map[int][]float64{}
		boxes, counters := 0, map[int]map[string]any{}
		perUnit := 1.0
		if step.Unit == "ms" {
			perUnit = 1000
		}
		for _, e := range read.TraceEvents {
			where := track{"", e.Pid, e.Tid}
			switch e.Ph {
			case "X":
				require.GreaterOrEqual(t, e.Ts, last[where]-1e-6, name)
				last[where] = e.Ts + e.Dur
				i := slices.IndexFunc(step.Events[e.Pid], func(s simulate.TimedAction) bool { return s.Action.String() == e.Name })
				of := step.Events[e.Pid][i]
				require.InDelta(t, float64(of.Start)*perUnit/float64(max(step.Scale, 1)), e.Ts, 1e-3)
				require.InDelta(t, float64(of.End-of.Start)*perUnit/float64(max(step.Scale, 1)), e.Dur, 1e-3)
				require.EqualValues(t, of.Position, e.Args["position"])
				require.EqualValues(t, of.Action.Stage(), e.Args["stage"])
				require.EqualValues(t, of.Action.Microbatch(), e.Args["microbatch"])
				require.Equal(t, of.Action.Kind().String(), e.Args["kind"])
				boxes++
			case "s", "f":
				ends[e.ID] = append(ends[e.ID], e.Ts)
				if e.Ph == "s" {
					require.LessOrEqual(t, e.Ts, last[where])
				}
			case "C":
				where.ph = "C"
				require.GreaterOrEqual(t, e.Ts, last[where], name)
				last[where] = e.Ts
				counters[e.Pid] = e.Args
			}
		}
		for _, pair := range ends {
			require.Len(t, pair, 2, name)
		}
		want, flows := 0, 0
		for rank, events := range step.Events {
			want += len(events)
			for _, e := range events {
				if stage := e.Action.Stage(); !step.Plan.Placement.Last(stage) && step.Plan.Placement.Rank[stage+1] != rank && e.Action.Kind() == schedule.F {
					flows++
				}
			}
			for class, n := range events[len(events)-1].Live {
				if read, ok := counters[rank][memory.Class(class).String()]; ok || n != 0 {
					require.EqualValues(t, n, read, name)
				}
			}
		}
		require.Equal(t, want, boxes, name)
		if step.Plan.Mode == schedule.Training {
			flows *= 2
		}
		require.Len(t, ends, flows, name)
	}
}

// TestMeasured draws a measured step: with its own clock, and without positions or bytes.
func TestMeasured(t *testing.T) {
	plan, err := schedule.BreadthFirst(schedule.Params{Placement: schedule.Looped(2, 8), Microbatches: 1,
		Frozen: []bool{true, false, true, false, false, false, false, false}})
	require.NoError(t, err)
	step := &draw.Step{Plan: plan, Unit: "s", Scale: 1e9}
	for rank := range plan.Programs {
		var events []simulate.TimedAction
		now := int64(5e9) + int64(rank)*1e6
		for a := range plan.All(rank) {
			events = append(events, simulate.TimedAction{Rank: rank, Action: a, Start: now, End: now + 2e6})
			now += 2_500_000
		}
		step.Events = append(step.Events, events)
	}
	text := picture(t, step)
	require.Contains(t, text, "makespan 0.0")
	require.Contains(t, text, "<title>0F0, 0 s to 0.002 s</title>")
	require.Contains(t, text, ">stages 0 2 4 6<")
	require.Contains(t, text, ">peak 0.75<") // the frozen prefix holds nothing
	require.Contains(t, text, "peak 1 microbatch in flight on rank 1")
	require.Regexp(t, `class="line" d="M118 159[^"]*V159H878"`, text) // nothing is held at the end
	for unit, first := range map[string]string{"s": `"ts":0,"dur":2000,`, "ms": `"ts":0,"dur":2,`, "us": `"ts":0,"dur":0.002,`, "": `"ts":0,"dur":0.002,`} {
		step.Unit = unit
		require.Contains(t, trace(t, step), first)
	}

	// No tensors are sent between the copies of a model.
	copies := &schedule.Plan{Mode: schedule.ForwardOnly, Placement: schedule.Placement{Ranks: 2, Rank: []int{0, 1, 0, 1}, Copies: 2}, Microbatches: 2}
	arrows := &draw.Step{Plan: copies, Events: make([][]simulate.TimedAction, 2)}
	for stage, mb := range []int{0, 0, 1, 1} {
		arrows.Events[stage%2] = append(arrows.Events[stage%2], simulate.TimedAction{Rank: stage % 2, Action: schedule.NewAction(schedule.F, stage, mb), Start: int64(stage), End: int64(stage + 1)})
	}
	require.Equal(t, 2, strings.Count(trace(t, arrows), `"ph":"s"`))
	require.Equal(t, 2, strings.Count(trace(t, arrows), `"ph":"f"`))

	step.Unit, step.Scale = "ns", 1
	require.Contains(t, trace(t, step), `"ts":0,"dur":2000,`)
	require.NotContains(t, trace(t, step), `"ph":"C"`)
}

// TestMeasures: a stage that is much shorter than the others does not make a picture 8,000
// pixels wide for twelve microbatches, and a long title wraps within the picture.
func TestMeasures(t *testing.T) {
	plan := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 12})
	costs := &simulate.Costs{Stages: slices.Repeat([]simulate.StageCosts{{F: 300, B: 600}}, 4)}
	costs.Stages[0] = simulate.StageCosts{F: 1, B: 2}
	plan.Name = strings.Repeat("a long name, ", 20) + strings.Repeat("x", 300)
	step := simulated(t, plan, costs, schedule.Unlimited)
	text := picture(t, step)
	require.Contains(t, text, `<svg xmlns="http://www.w3.org/2000/svg" width="1438" height="505" viewBox="0 -72 1438 505" role="img">`)
	lines := regexp.MustCompile(`<text class="title" x="20" y="([-0-9]+)">(.*)</text>`).FindAllStringSubmatch(text, -1)
	require.Len(t, lines, 4)
	require.Equal(t, "-39", lines[0][1])
	for _, line := range lines {
		require.LessOrEqual(t, len([]rune(line[2])), 133)
	}
	require.True(t, strings.HasSuffix(lines[3][2], "x…"))
}

func TestErrors(t *testing.T) {
	long := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 1_000_000})
	_, err := draw.Simulate(long, ticks, schedule.Unlimited)
	require.ErrorIs(t, err, draw.ErrTooLong)
	require.EqualError(t, err, "draw: too many actions: 8000000, and at most 1048576 can be shown: use fewer microbatches")
	long = plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 3_000})
	step := simulated(t, long, ticks, schedule.Unlimited)
	require.EqualError(t, step.SVG(io.Discard), "draw: too many actions: 24000, and at most 20000 can be shown: use fewer microbatches, or write a page with HTML")
	require.NoError(t, step.Trace(io.Discard))
	_, err = draw.Simulate(long, &simulate.Costs{}, schedule.Unlimited)
	require.ErrorIs(t, err, simulate.ErrCosts)

	for want, spoil := range map[string]func(s *draw.Step){
		"events of 3 ranks": func(s *draw.Step) { s.Events = s.Events[:3] },
		"3 copies cannot have equal shares of 4 stages": func(s *draw.Step) {
			plan := *s.Plan
			plan.Placement.Copies, s.Plan = 3, &plan
		},
		"and 1 peaks":                    func(s *draw.Step) { s.Peaks = s.Peaks[:1] },
		"is of stage 9":                  func(s *draw.Step) { s.Events[1][1].Action = schedule.NewAction(schedule.F, 9, 0) },
		"begins before an earlier event": func(s *draw.Step) { s.Events[1][1].Start = s.Events[1][0].Start },
		"from 9 to 3":                    func(s *draw.Step) { s.Events[2][2].Start, s.Events[2][2].End = 9, 3 },
	} {
		s := steps(t)["1f1b"]
		spoil(s)
		for _, err := range []error{s.SVG(io.Discard), s.Trace(io.Discard), s.HTML(io.Discard)} {
			require.ErrorIs(t, err, draw.ErrStep)
			require.ErrorContains(t, err, want)
		}
	}
	s := steps(t)["one"]
	require.ErrorIs(t, s.SVG(full{}), errFull)
	require.ErrorIs(t, s.Trace(full{}), errFull)
	require.ErrorIs(t, s.HTML(full{}), errFull)
}

var errFull = errors.New("full")

// full accepts no bytes.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestPages: a page has every computation of the step, has levels if anything is held, and loads
// nothing.
func TestPages(t *testing.T) {
	for name, step := range steps(t) {
		var out strings.Builder
		require.NoError(t, step.HTML(&out), name)
		text := out.String()
		require.NotContains(t, strings.ReplaceAll(text, "http://www.w3.org", ""), "http")
		start := strings.Index(text, "ranks:[") + len("ranks:")
		var ranks []struct {
			Boxes  []int64
			Levels []float64
		}
		require.NoError(t, json.NewDecoder(strings.NewReader(text[start:])).Decode(&ranks), name)
		require.Len(t, ranks, len(step.Events), name)
		for rank, events := range step.Events {
			require.Len(t, ranks[rank].Boxes, 7*len(events), name)
			for i, e := range events {
				a, box := e.Action, ranks[rank].Boxes[7*i:7*i+7]
				require.Equal(t, []int64{e.Start, e.End, int64(a.Kind()), int64(a.Stage()), int64(a.Microbatch())}, box[:5], name)
				require.Equal(t, a.Joined(), box[6] == 1, name)
			}
			require.Equal(t, step.Plan.Mode == schedule.ForwardOnly && !strings.HasSuffix(name, "bytes"), len(ranks[rank].Levels) == 0, name)
		}
	}
	step := steps(t)["one"]
	plan := *step.Plan
	plan.Name = "</title><script>\"'&</script>"
	step.Plan = &plan
	var out strings.Builder
	require.NoError(t, step.HTML(&out))
	require.Equal(t, 1, strings.Count(out.String(), "<script>"))
}

// TestHostileNames: a name cannot break out of its text, and an empty step has a picture
// too.
func TestHostileNames(t *testing.T) {
	step := steps(t)["one"]
	plan := *step.Plan
	plan.Name = "</title><script>\"'&\x00\xff]]>"
	step.Plan, step.Unit = &plan, "<b>&\x1b"
	text := picture(t, step)
	require.NotContains(t, text, "<script>")
	require.NotContains(t, text, "<b>")
	require.NoError(t, xml.Unmarshal([]byte(text), new(struct{ XMLName xml.Name })))
	require.NoError(t, json.Unmarshal([]byte(trace(t, step)), new(any)))

	step.Events = [][]simulate.TimedAction{nil}
	text = picture(t, step)
	require.Contains(t, text, "makespan 0")
	require.NotContains(t, text, "NaN")
	require.NoError(t, xml.Unmarshal([]byte(text), new(struct{ XMLName xml.Name })))
	require.NoError(t, json.Unmarshal([]byte(trace(t, step)), new(any)))
}

// TestFront draws the line before the actions that have not run, at the time at which each
// rank begins them.
func TestFront(t *testing.T) {
	s := steps(t)["1f1b"]
	plain := picture(t, s)
	own := *s
	last := s.Events[0][len(s.Events[0])-1].Position
	require.Equal(t, s.Events[0][3].Start, own.TimeAt(0, s.Events[0][3].Position))
	require.Greater(t, own.TimeAt(0, last+1), own.TimeAt(0, last))
	for rank := range s.Events {
		own.Front = append(own.Front, draw.Front{Time: own.TimeAt(rank, 3), Blamed: rank == 1, Explain: "a < b"})
	}
	faded := picture(t, &own)
	ranks := len(s.Events)
	require.Equal(t, ranks, strings.Count(faded, `fill-opacity="0.72"`))
	require.Equal(t, 1, strings.Count(faded, `r="7"><title>a &lt; b</title>`))
	require.Equal(t, ranks-1, strings.Count(faded, `r="3.5"><title>`))
	_, drawn, _ := strings.Cut(strings.TrimSuffix(plain, "</svg>\n"), `<path class="axis"`)
	require.Contains(t, faded, drawn)
	require.Contains(t, faded, "nothing to the right of the line has run")

	own.Front = own.Front[1:]
	require.ErrorIs(t, own.SVG(io.Discard), draw.ErrStep)
}

// TestCompare draws the ranks of two steps above each other, aligned at their starts.
func TestCompare(t *testing.T) {
	all := steps(t)
	first := all["1f1b"]
	later := *first
	later.Events = nil
	for _, events := range first.Events {
		events = slices.Clone(events)
		for i := range events {
			events[i].Start, events[i].End = 2*events[i].Start+1000, 2*events[i].End+1000
		}
		later.Events = append(later.Events, events)
	}
	var out strings.Builder
	require.NoError(t, draw.Compare(&out, draw.Labels{Title: "a < b", Note: "rank 0 is slow", Steps: [2]string{"run", "plan"}}, first, &later))
	page := out.String()
	require.Contains(t, page, "<h1>a &lt; b</h1>")
	require.Less(t, strings.Index(page, `"name":"0 run"`), strings.Index(page, `"name":"0 plan"`))
	require.Less(t, strings.Index(page, `"name":"0 plan"`), strings.Index(page, `"name":"1 run"`))
	require.Equal(t, 2, strings.Count(page, `"boxes":[0,`), "both steps begin at 0 on the first rank")
	require.NotContains(t, page, "The area below a rank")
	require.Contains(t, page, `<p class="note">rank 0 is slow</p>`)
	require.Equal(t, 1, strings.Count(page, `"marked":true`), "rank 0 of the first step")
	require.ErrorIs(t, draw.Compare(&out, draw.Labels{}, first, all["one"]), draw.ErrStep)
}

// A long step in a small unit of time is drawn in a larger one.
func TestLargerUnit(t *testing.T) {
	step := *steps(t)["1f1b"]
	for unit, want := range map[string]string{"ns": "makespan 27 ms", "us": "makespan 27 s", "s": "makespan 27000000 s", "": "makespan 27000000 ticks"} {
		step.Unit, step.Events = unit, nil
		for _, events := range steps(t)["1f1b"].Events {
			events = slices.Clone(events)
			for i := range events {
				events[i].Start, events[i].End = 1e6*events[i].Start, 1e6*events[i].End
			}
			step.Events = append(step.Events, events)
		}
		require.Contains(t, picture(t, &step), want)
	}
}

// drawn returns a step as SVG, page and trace.
func drawn(t *testing.T, plan *schedule.Plan, costs *simulate.Costs) (svg, page, trace string) {
	step := simulated(t, plan, costs, schedule.Unlimited)
	var texts [3]strings.Builder
	require.NoError(t, step.SVG(&texts[0]))
	require.NoError(t, step.HTML(&texts[1]))
	require.NoError(t, step.Trace(&texts[2]))
	return texts[0].String(), texts[1].String(), texts[2].String()
}

// TestCopiesHaveARow draws copies that take time, and no row for copies that take none.
func TestCopiesHaveARow(t *testing.T) {
	plan := plantest.Made(t, schedule.GPipe, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 4})
	plan, err := lower.Offload(plan, []uint64{1, 0}, 0)
	require.NoError(t, err)
	shown := func(farPerMiB int64) (svg, page, trace string) {
		return drawn(t, plan, &simulate.Costs{FarPerMiB: farPerMiB, Stages: []simulate.StageCosts{{F: 4, I: 4, W: 4, Saved: 1 << 20}}})
	}
	svg, page, trace := shown(3)
	require.Contains(t, svg, "<title>0OFFLOAD0, 4 ticks to 7 ticks</title>")
	require.Contains(t, svg, "copy to far memory")
	require.Contains(t, svg, "<title>0RELOAD0, ")
	require.Contains(t, page, `"name":"0 to far","stages":"","peak":"","boxes":[4,7,11,0,0,100,0,`)
	require.Contains(t, trace, `{"ph":"M","name":"thread_name","pid":0,"tid":2,"ts":0,"args":{"name":"to far memory"}}`)
	require.Contains(t, trace, `{"ph":"X","name":"0OFFLOAD0","cat":"OFFLOAD","pid":0,"tid":2,"ts":4,"dur":3,`)
	require.NotContains(t, trace, `"pid":1,"tid":2`)

	svg, page, trace = shown(0)
	require.NotContains(t, svg+page+trace, "0OFFLOAD0")
	require.NotContains(t, page, "0 to far")
}

// TestQuantize: a QUANTIZE that takes time is drawn, with its copies; one that takes no time
// is not.
func TestQuantize(t *testing.T) {
	plan := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 2})
	plan, err := lower.Quantize(plan, []schedule.StageInfo{{Quantizes: true}, {Quantizes: true}}, lower.AtStart)
	require.NoError(t, err)
	shown := func(costs simulate.StageCosts) (svg, trace string) {
		step := simulated(t, plan, &simulate.Costs{Stages: []simulate.StageCosts{costs}}, schedule.Unlimited)
		var picture, events strings.Builder
		require.NoError(t, step.SVG(&picture))
		require.NoError(t, step.Trace(&events))
		return picture.String(), events.String()
	}
	svg, trace := shown(simulate.StageCosts{F: 4, I: 4, W: 4, Quantize: 3, ForwardWeights: 5, BackwardWeights: 6})
	require.Contains(t, svg, "<title>1QUANTIZE, 0 ticks to 3 ticks</title>")
	require.Contains(t, svg, "Q weights quantized")
	require.Contains(t, trace, `{"ph":"X","name":"1QUANTIZE","cat":"QUANTIZE","pid":1,"tid":0,"ts":0,"dur":3,"args":{"stage":1,"microbatch":0,"kind":"QUANTIZE","position":0}}`)
	require.Contains(t, trace, `{"ph":"C","name":"live bytes","pid":0,"tid":0,"ts":3,"args":{"fp8":11}}`)

	svg, trace = shown(simulate.StageCosts{F: 4, I: 4, W: 4})
	require.NotContains(t, svg, `class="QUANTIZE"`)
	require.NotContains(t, svg, "quantized")
	require.NotContains(t, trace, "QUANTIZE")
}

// TestExchangesHaveARow draws gathers and reductions of replicas, including those before the first computation and
// after the last one.
func TestExchangesHaveARow(t *testing.T) {
	plan := plantest.Made(t, schedule.GPipe, schedule.Params{Placement: schedule.Looped(2, 4), Microbatches: 2})
	plan, err := lower.Shard(plan, 1)
	require.NoError(t, err)
	plan, err = lower.Reduce(plan, schedule.ShardWeights)
	require.NoError(t, err)
	shown := func(replicas int) (svg, page, trace string) {
		return drawn(t, plan, &simulate.Costs{Replicas: replicas, Shard: 3, ReplicaPerMiB: 3,
			Stages: []simulate.StageCosts{{F: 4, I: 4, W: 4, Weights: 2 << 20, Gradients: 2 << 20}}})
	}
	svg, page, trace := shown(2)
	require.Contains(t, svg, "<title>0UNSHARD, 0 ticks to 3 ticks</title>")
	require.Contains(t, svg, "<title>0F0, 3 ticks to 7 ticks</title>")
	require.Contains(t, svg, "<title>0REDUCE_GRAD, 69 ticks to 72 ticks</title>", "after the last computation")
	require.Contains(t, svg, "gradients reduced")
	require.Contains(t, page, `"name":"0 gather","stages":"","peak":"","boxes":[0,3,14,0,0,100,0,`)
	require.Contains(t, trace, `"args":{"name":"weights between replicas"}`)
	svg, page, trace = shown(1)
	require.NotContains(t, svg+page+trace, "REDUCE_GRAD,")
	require.NotContains(t, page, "0 gather")
}

// simulated returns the step of a plan that can be simulated.
func simulated(t require.TestingT, plan *schedule.Plan, costs *simulate.Costs, capacity int) *draw.Step {
	step, err := draw.Simulate(plan, costs, capacity)
	require.NoError(t, err)
	return step
}

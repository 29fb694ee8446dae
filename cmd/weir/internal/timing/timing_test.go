package timing_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/timing"
	"github.com/weir-ml/weir/cmd/weir/internal/traces"
	"github.com/weir-ml/weir/cmd/weir/internal/traces/tracetest"
	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

const ms = 1_000_000

// uneven returns costs with different stages and hops of 2 ms.
func uneven(stages int) *simulate.Costs {
	c := &simulate.Costs{Unit: "ns", Latency: 2 * ms}
	for s := range int64(stages) {
		c.Stages = append(c.Stages, simulate.StageCosts{F: 10*ms + s*100_000, I: 11*ms + s, W: 7 * ms, B: 18*ms + s, Joined: 26 * ms})
	}
	return c
}

func simulated(t *testing.T, p *schedule.Plan, costs *simulate.Costs, steps int) *tracetest.Steps {
	s, err := tracetest.Simulate(p, costs, steps)
	require.NoError(t, err)
	return s
}

// kineto writes the steps as files of torch.profiler and reads them.
func kineto(t *testing.T, s *tracetest.Steps, category string) (all []*traces.Trace) {
	for rank := range s.Events {
		one, err := traces.ReadFrom("trace.json", bytes.NewReader(s.Kineto(rank, category)))
		require.NoError(t, err)
		all = append(all, one...)
	}
	return all
}

// analyzed returns the report of the steps as a device records them.
func analyzed(t *testing.T, s *tracetest.Steps) *timing.Report {
	return reportOf(t, timing.Request{Traces: kineto(t, s, "gpu_user_annotation")})
}

// The analysis of a simulated step returns the costs, the makespan and the waits of the simulation.
func TestMeasuresWhatWasSimulated(t *testing.T) {
	for _, c := range []struct {
		schedule      string
		ranks, stages int
	}{{"1f1b", 4, 4}, {"zb-h1", 4, 4}, {"interleaved", 4, 8}, {"zb-v", 4, 8}, {"gpipe", 3, 3}, {"dualpipev", 2, 4}} {
		t.Run(c.schedule, func(t *testing.T) {
			p, costs := plantest.Named(t, c.schedule, c.ranks, c.stages, 8), uneven(c.stages)
			want, err := simulate.Run(p, costs, 0)
			require.NoError(t, err)
			r := analyzed(t, simulated(t, p, costs, 3))
			require.Empty(t, r.Refused)
			require.Len(t, r.Steps, 3)
			require.Equal(t, want.Makespan, r.Measured.Makespan)
			require.Equal(t, want.Makespan, r.Simulated.Makespan)
			require.InDelta(t, want.BubbleMakespan(), r.Measured.Bubble, 1e-9)
			for rank := range want.Ranks {
				require.Equal(t, want.Ranks[rank].Busy, r.PerRank[rank].Busy)
				require.Equal(t, want.Ranks[rank].Wait, r.PerRank[rank].Wait)
			}
			for _, one := range r.Costs {
				s := costs.Stages[one.Stage]
				require.Equal(t, map[string]int64{"F": s.F, "I": s.I, "W": s.W, "B": s.B}[one.Kind], one.Median, "%s of stage %d", one.Kind, one.Stage)
			}
			for _, l := range r.Links {
				if l.Copying >= 0 {
					require.Equal(t, costs.Latency, l.Copying, "%d to %d", l.From, l.To)
				}
			}
		})
	}
}

// Annotations on the host include the wait for the input. The costs exclude it, except for a part
// of a hop if the rank has waited for every input.
func TestWaitsInsideOfSpans(t *testing.T) {
	p, costs := plantest.Named(t, "1f1b", 4, 4, 8), uneven(4)
	s := simulated(t, p, costs, 2)
	s.WaitInside()
	r := reportOf(t, timing.Request{Traces: kineto(t, s, "user_annotation")})
	for _, one := range r.Costs {
		c := costs.Stages[one.Stage]
		require.InEpsilon(t, map[string]int64{"F": c.F, "B": c.B}[one.Kind], one.Median, 0.025, "%s of stage %d", one.Kind, one.Stage)
	}
	want, err := simulate.Run(p, costs, 0)
	require.NoError(t, err)
	require.InEpsilon(t, want.Makespan, r.Simulated.Makespan, 0.001)
	require.True(t, r.Halved)
}

// A slow rank and a slow link are reported in every schedule, and no straggler is reported if all
// are equal.
func TestStraggler(t *testing.T) {
	for _, name := range []string{"1f1b", "zb-h1", "interleaved", "zb-v"} {
		stages := map[string]int{"interleaved": 8, "zb-v": 8}[name]
		p := plantest.Named(t, name, 4, max(stages, 4), 16)
		even := func() *simulate.Costs {
			c := uneven(p.Placement.Stages())
			for s := range c.Stages {
				c.Stages[s].F, c.Stages[s].I, c.Stages[s].B = 10*ms, 11*ms, 18*ms
			}
			return c
		}
		for rank := range 4 {
			costs := even()
			tracetest.Slow(p, costs, rank, 1.3)
			r := analyzed(t, simulated(t, p, costs, 1))
			require.NotNil(t, r.Straggler, "%s rank %d", name, rank)
			require.Equal(t, rank, r.Straggler.Rank, "%s", name)
			require.InDelta(t, 1.3, r.Straggler.Factor, 0.01)
		}
		for from := range 3 {
			costs := even()
			costs.Links = []simulate.LinkCosts{{From: from, To: from + 1, Latency: 30 * ms}}
			r := analyzed(t, simulated(t, p, costs, 1))
			require.NotNil(t, r.Straggler, "%s link %d", name, from)
			require.NotNil(t, r.Straggler.Link, "%s link %d", name, from)
			require.Equal(t, [2]int{from, from + 1}, [2]int{r.Straggler.Link.From, r.Straggler.Link.To}, "%s", name)
		}
		r := analyzed(t, simulated(t, p, even(), 1))
		require.Nil(t, r.Straggler, "%s", name)
	}
}

// steps joins the steps of several simulations.
func steps(all ...*tracetest.Steps) *tracetest.Steps {
	out := &tracetest.Steps{Plan: all[0].Plan, Events: make([][]simulate.TimedAction, len(all[0].Events))}
	offset := int64(0)
	for _, s := range all {
		end := offset
		for rank := range s.Events {
			s.Shift(rank, offset)
			out.Events[rank] = append(out.Events[rank], s.Events[rank]...)
			end = max(end, s.Events[rank][len(s.Events[rank])-1].End)
		}
		offset = end + ms
	}
	return out
}

// equalStages returns costs of equal stages, with hops of 2 ms.
func equalStages(stages int) *simulate.Costs {
	return &simulate.Costs{Unit: "ns", Latency: 2 * ms, Stages: slices.Repeat([]simulate.StageCosts{{F: 10 * ms, I: 11 * ms, W: 7 * ms, B: 18 * ms}}, stages)}
}

// A rank with one long step is not reported as slow, because its medians, or half of its times, equal those of
// the others. A rank that is slow in every step is still reported.
func TestLongStepIsNotSlowRank(t *testing.T) {
	p := plantest.Named(t, "1f1b", 4, 4, 8)
	for _, slow := range []bool{false, true} {
		for name, disturbed := range map[string]func(schedule.Action) bool{
			"one action": func(a schedule.Action) bool { return a == schedule.NewAction(schedule.B, 3, 4) },
			"all":        func(a schedule.Action) bool { return a.Stage() == 3 },
		} {
			var all []*tracetest.Steps
			for n := range 2 {
				costs := equalStages(4)
				if slow {
					tracetest.Slow(p, costs, 2, 1.5)
				}
				if n == 1 {
					costs.Each = func(a schedule.Action) int64 {
						s := costs.Stages[a.Stage()]
						took := map[schedule.Kind]int64{schedule.F: s.F, schedule.B: s.B}[a.Kind()]
						if disturbed(a) {
							took *= 36
						}
						return took
					}
				}
				all = append(all, simulated(t, p, costs, 1))
			}
			r := analyzed(t, steps(all...))
			require.Equal(t, 0, r.Shown, name)
			if !slow {
				require.Nil(t, r.Straggler, name)
				continue
			}
			require.NotNil(t, r.Straggler, name)
			require.Equal(t, 2, r.Straggler.Rank, name)
			require.InDelta(t, 1.5, r.Straggler.Factor, 0.01)
		}
	}
}

// A rank that takes 6 % longer on a machine whose times vary is not reported. Neither is a link that would save
// about 1 %.
func TestSmallDifferencesAreNoFindings(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for _, name := range []string{"1f1b", "zb-h1", "interleaved", "zb-v"} {
		p := plantest.Named(t, name, 4, max(map[string]int{"interleaved": 8, "zb-v": 8}[name], 4), 16)
		for rank := range 4 {
			var all []*tracetest.Steps
			for range 3 {
				costs := equalStages(p.Placement.Stages())
				tracetest.Slow(p, costs, rank, 1.06)
				costs.Each = func(a schedule.Action) int64 {
					s := costs.Stages[a.Stage()]
					took := map[schedule.Kind]int64{schedule.F: s.F, schedule.B: s.B, schedule.I: s.I, schedule.W: s.W}[a.Kind()]
					return took + int64(float64(took)*random.ExpFloat64()*0.2)
				}
				all = append(all, simulated(t, p, costs, 1))
			}
			require.Nil(t, analyzed(t, steps(all...)).Straggler, "%s, rank %d", name, rank)
		}
		costs := equalStages(p.Placement.Stages())
		even := analyzed(t, simulated(t, p, costs, 1)).Measured.Makespan
		costs.Links = []simulate.LinkCosts{{From: 0, To: 1, Latency: costs.Latency + even/400}}
		r := analyzed(t, simulated(t, p, costs, 1))
		require.Less(t, float64(r.Measured.Makespan), 1.02*float64(even), name)
		require.Nil(t, r.Straggler, name)
	}
}

// The clocks of hosts are aligned, and the width bounds the error.
func TestClocksOfHosts(t *testing.T) {
	p, costs := plantest.Named(t, "1f1b", 4, 4, 8), uneven(4)
	s := simulated(t, p, costs, 2)
	const off = 3_700 * ms
	s.Shift(2, off)
	s.Shift(3, off)
	r := reportOf(t, timing.Request{Traces: kineto(t, s, "gpu_user_annotation"), RanksPerHost: 2})
	require.Len(t, r.Clocks, 2)
	c := r.Clocks[1]
	require.True(t, c.Known)
	require.Equal(t, []int{2, 3}, c.Ranks)
	require.LessOrEqual(t, c.Width, 4*costs.Latency, "twice a hop, and as much again for spans of different lengths")
	require.InDelta(t, -off, c.Offset, float64(c.Width)/2)
	want, err := simulate.Run(p, costs, 0)
	require.NoError(t, err)
	require.InDelta(t, want.Makespan, r.Measured.Makespan, float64(c.Width))

	// Spans of transfers do not change the clocks.
	all := kineto(t, s, "gpu_user_annotation")
	for rank, one := range all {
		for _, span := range slices.Clone(one.Spans) {
			if send := span; span.Kind == schedule.F && rank < 3 {
				send.Kind, send.Start, send.End = schedule.SendF, span.End, span.End+costs.Latency
				one.Spans = append(one.Spans, send)
			}
		}
		slices.SortStableFunc(one.Spans, func(a, b traces.Span) int { return cmp.Compare(a.Start, b.Start) })
	}
	sent := reportOf(t, timing.Request{Traces: all, RanksPerHost: 2})
	require.Equal(t, r.Clocks, sent.Clocks)

	// A clock that is set during the run fits no offset.
	for rank := 2; rank < 4; rank++ {
		for i := len(s.Events[rank]) / 2; i < len(s.Events[rank]); i++ {
			s.Events[rank][i].Start += 1000 * ms
			s.Events[rank][i].End += 1000 * ms
		}
	}
	_, err = timing.Analyze(timing.Request{Traces: kineto(t, s, "gpu_user_annotation"), RanksPerHost: 2})
	require.ErrorIs(t, err, timing.ErrRun)
	require.ErrorContains(t, err, "a clock was set during the run")
	var apart int64
	_, numbers, _ := strings.Cut(err.Error(), "that are ")
	_, err = fmt.Sscan(numbers, &apart)
	require.NoError(t, err)
	require.InDelta(t, 1000*ms, apart, float64(4*costs.Latency))
}

// Spans of Megatron-LM and traces of Weir give the same figures as traces of torch.profiler.
func TestOtherFormats(t *testing.T) {
	p, costs := plantest.Named(t, "1f1b", 4, 4, 8), uneven(4)
	s := simulated(t, p, costs, 1)
	want, err := simulate.Run(p, costs, 0)
	require.NoError(t, err)
	weir, err := s.Weir()
	require.NoError(t, err)
	for name, text := range map[string][]byte{"otlp.jsonl": s.OTLP(4), "weir.json": weir} {
		all, err := traces.ReadFrom(name, bytes.NewReader(text))
		require.NoError(t, err, name)
		require.Len(t, all, 4, name)
		r := reportOf(t, timing.Request{Traces: sorted(all)})
		require.Equal(t, want.Makespan, r.Measured.Makespan, name)
		require.Equal(t, want.Makespan, r.Simulated.Makespan, name)
	}
}

func sorted(all []*traces.Trace) []*traces.Trace {
	out := make([]*traces.Trace, len(all))
	for _, t := range all {
		out[t.Rank] = t
	}
	return out
}

// Parallel pipelines are separated, and a rank without a trace is reported.
func TestPipelines(t *testing.T) {
	p := plantest.Named(t, "1f1b", 2, 2, 4)
	var all []*traces.Trace
	for rank := range 4 { // ranks 0 and 1 have stage 0
		costs := uneven(2)
		tracetest.Slow(p, costs, 0, float64(1+rank%2))
		for _, one := range kineto(t, simulated(t, p, costs, 1), "gpu_user_annotation") {
			if one.Rank == rank/2 {
				one.Rank, one.File = rank, fmt.Sprintf("rank%d.json", rank)
				all = append(all, one)
			}
		}
	}
	for pipeline := range 2 {
		r := reportOf(t, timing.Request{Traces: all, Pipeline: pipeline})
		require.Equal(t, pipeline, r.PerRank[0].Global)
		require.Equal(t, 2+pipeline, r.PerRank[1].Global)
		require.EqualValues(t, 10*ms*(1+pipeline), r.Costs[0].Median)
	}
	_, err := timing.Analyze(timing.Request{Traces: all[:3]})
	require.ErrorContains(t, err, "give the traces of all ranks")
	_, err = timing.Analyze(timing.Request{Traces: all, Pipeline: 2})
	require.ErrorContains(t, err, "there are 2 parallel pipelines")
}

// Ranks 0 to n-2 look like a smaller run: the size of the job or the plan shows that some are
// missing.
func TestMissingRanks(t *testing.T) {
	p := plantest.Named(t, "1f1b", 4, 4, 8)
	all := kineto(t, simulated(t, p, uneven(4), 1), "gpu_user_annotation")
	_, err := timing.Analyze(timing.Request{Traces: all[:3]})
	require.ErrorIs(t, err, timing.ErrRun)
	require.ErrorContains(t, err, "the job has 4 ranks, but the traces cover the stages of only 3; traces of rank 3 are missing")
	r := reportOf(t, timing.Request{Traces: all[:2]})
	require.Equal(t, []int{2, 3}, r.Absent)
	_, err = timing.Analyze(timing.Request{Traces: all[:2], Plan: p})
	require.ErrorContains(t, err, "the job has 4 ranks, but the traces cover the stages of only 2; traces of ranks 2 and 3 are missing")
	for _, one := range all {
		one.WorldSize = 0
	}
	_, err = timing.Analyze(timing.Request{Traces: all[:3], Plan: p})
	require.ErrorContains(t, err, "traces of rank 3 are missing")
}

// Files of different runs are rejected.
func TestOtherRun(t *testing.T) {
	s := simulated(t, plantest.Named(t, "1f1b", 4, 4, 8), uneven(4), 3)
	s.Shift(3, 3600*1000*ms)
	_, err := timing.Analyze(timing.Request{Traces: kineto(t, s, "gpu_user_annotation")})
	require.ErrorIs(t, err, timing.ErrRun)
	require.ErrorContains(t, err, "the files are of different runs")
}

// If recordings begin or end within a step, on all ranks or on one, their complete steps are
// compared.
func TestStepsThatAreCut(t *testing.T) {
	for _, name := range []string{"1f1b", "zb-h1", "gpipe"} {
		p, costs := plantest.Named(t, name, 4, 4, 8), uneven(4)
		want, err := simulate.Run(p, costs, 0)
		require.NoError(t, err)
		for _, c := range []struct {
			name string
			keep func(rank int, spans []traces.Span) []traces.Span
			left int
		}{
			{"one rank ends early", func(rank int, s []traces.Span) []traces.Span { return s[:len(s)-5*(rank%2)] }, 3},
			{"one rank begins late", func(rank int, s []traces.Span) []traces.Span { return s[3*(rank%2):] }, 3},
			{"ranks have fewer steps", func(rank int, s []traces.Span) []traces.Span { return s[:len(s)*(4-rank/2)/4] }, 3},
			{"a window of time", func(_ int, s []traces.Span) []traces.Span {
				return slices.DeleteFunc(s, func(s traces.Span) bool {
					at := s.Start - 1790857026000000000
					return at < want.Makespan/2 || at > want.Makespan*7/2
				})
			}, 2},
		} {
			t.Run(name+", "+c.name, func(t *testing.T) {
				all := kineto(t, simulated(t, p, costs, 4), "gpu_user_annotation")
				for _, one := range all {
					one.Spans = c.keep(one.Rank, one.Spans)
				}
				r := reportOf(t, timing.Request{Traces: all})
				require.Empty(t, r.Refused)
				require.Len(t, r.Steps, c.left)
				require.Equal(t, want.Makespan, r.Measured.Makespan)
				require.Equal(t, want.Makespan, r.Simulated.Makespan)
			})
		}
	}
}

// A plan determines the order of the ranks, and the first action that differs from the plan is
// reported.
func TestPlan(t *testing.T) {
	p, costs := plantest.Named(t, "zb-v", 4, 8, 8), uneven(8)
	all := kineto(t, simulated(t, p, costs, 1), "gpu_user_annotation")
	all[0].Rank, all[3].Rank = 3, 0
	r := reportOf(t, timing.Request{Traces: all, Plan: p})
	require.Empty(t, r.Departures)
	require.Equal(t, r.Measured.Makespan, r.Simulated.Makespan)

	other := plantest.Named(t, "1f1b", 4, 4, 8)
	all = kineto(t, simulated(t, other, uneven(4), 1), "gpu_user_annotation")
	r = reportOf(t, timing.Request{Traces: all, Plan: plantest.Named(t, "gpipe", 4, 4, 8)})
	require.Equal(t, timing.Departure{Rank: 0, Ran: schedule.NewAction(schedule.B, 0, 0), Plan: schedule.NewAction(schedule.F, 0, 4)}, r.Departures[0])
	_, err := timing.Analyze(timing.Request{Traces: all, Plan: plantest.Named(t, "gpipe", 4, 4, 6)})
	require.ErrorContains(t, err, "the plan has 6 microbatches, but the traces have 8")
	_, err = timing.Analyze(timing.Request{Traces: all, Plan: p})
	require.ErrorContains(t, err, "the plan has 4 ranks and 8 stages")
}

// Traces can be files, folders and patterns, compressed or not.
func TestFiles(t *testing.T) {
	p := plantest.Named(t, "1f1b", 2, 2, 4)
	s := simulated(t, p, uneven(2), 1)
	folder := t.TempDir()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(s.Kineto(0, "user_annotation"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.NoError(t, os.WriteFile(filepath.Join(folder, "node7_31.1790857026.pt.trace.json.gz"), packed.Bytes(), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "node8_31.1790857026.pt.trace.json"), s.Kineto(1, "user_annotation"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "notes.txt"), []byte("none"), 0o600))
	for _, name := range []string{folder, filepath.Join(folder, "*.json*")} {
		all, err := traces.Read(name)
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, "node7", all[0].Host)
		require.Equal(t, "node8", all[1].Host)
	}
}

// A hostile trace cannot make the analysis panic, or hold more memory than a multiple of its
// actions.
func TestHostile(t *testing.T) {
	for text, want := range map[string]string{
		`{"ph":"X","name":"0F268435455","ts":1,"dur":1,"pid":0}`: "the traces have 1 stage and microbatch 268435455, but a step has only 1 action: every stage must run every microbatch, starting at 0",
		`{"ph":"X","name":"9F0","ts":1,"dur":1,"pid":0}`:         "no trace has stage 0",
		`{"ph":"X","name":"0SEND_F0","ts":1,"dur":1,"pid":0}`:    "no computations",
		`{"ph":"X","name":"0F0","ts":1,"dur":1,"pid":0},{"ph":"X","name":"1F0","ts":1,"dur":1,"pid":0},{"ph":"X","name":"1F0","ts":1,"dur":1,"pid":1}`: "stage 1 is in",
	} {
		all, err := traces.ReadFrom("x.json", bytes.NewReader([]byte("["+text+"]")))
		require.NoError(t, err)
		_, err = timing.Analyze(timing.Request{Traces: all})
		require.ErrorIs(t, err, timing.ErrRun, text)
		require.ErrorContains(t, err, want)
	}
}

// Spans of launches do not give the times of computations. The error names them and says what to do.
func TestLaunchesAreNotTimed(t *testing.T) {
	p := plantest.Named(t, "1f1b", 2, 2, 4)
	for _, c := range []struct {
		trace traces.Trace
		want  string
	}{
		{traces.Trace{Launches: []schedule.Kind{schedule.F, schedule.B}}, "only the host has annotations of [F B], while kernels run on a device: their spans time launches, not the work; record with a profiler that annotates the device"},
		{traces.Trace{Launches: []schedule.Kind{schedule.B}, Annotated: true}, "only the host has annotations of [B]"},
		{traces.Trace{Launches: []schedule.Kind{schedule.B}, Annotated: true}, "set_multithreading_enabled(False)"},
	} {
		all := kineto(t, simulated(t, p, uneven(2), 1), "user_annotation")
		all[1].Launches, all[1].Annotated = c.trace.Launches, c.trace.Annotated
		_, err := timing.Analyze(timing.Request{Traces: all})
		require.ErrorIs(t, err, timing.ErrRun)
		require.ErrorContains(t, err, c.want)
	}
}

// The time of an analysis is linear in the number of spans of a trace, regardless of their order.
func TestLinear(t *testing.T) {
	const n = 100_000
	span := func(kind schedule.Kind, stage, microbatch int) traces.Span {
		return traces.Span{Kind: kind, Stage: stage, Microbatch: microbatch}
	}
	var shrinking, open, short []traces.Span
	for i := range n {
		shrinking = append(shrinking, span(schedule.F, 0, i))
		short = append(short, span(schedule.F, 0, 0))
		open = append(open, span(schedule.F, i%1000, i/1000))
	}
	open = append(open, span(schedule.B, 0, n))
	for name, spans := range map[string][]traces.Span{"a long step, then short ones": append(shrinking, short...), "a backward without forward": open, "short steps": short} {
		_, err := timing.Analyze(timing.Request{Traces: []*traces.Trace{{File: "x.json", Spans: spans}}})
		if err != nil {
			require.ErrorIs(t, err, timing.ErrRun, name)
		}
	}
}

// Stages that run few of the microbatches are rejected before a table with a cell for each
// microbatch is made.
func TestFewActions(t *testing.T) {
	var spans []traces.Span
	for i := range 8 {
		spans = append(spans, traces.Span{Kind: schedule.F, Microbatch: i}, traces.Span{Kind: schedule.B, Microbatch: i}, traces.Span{Kind: schedule.F, Stage: i/2 + 1, Microbatch: i % 2})
	}
	reportOf(t, timing.Request{Traces: []*traces.Trace{{File: "x.json", Spans: spans}}})
	for i := range 24 {
		spans = append(spans, traces.Span{Kind: schedule.F, Stage: i + 5})
	}
	_, err := timing.Analyze(timing.Request{Traces: []*traces.Trace{{File: "x.json", Spans: spans}}})
	require.ErrorIs(t, err, timing.ErrRun)
	require.ErrorContains(t, err, "every stage must run every microbatch, starting at 0")
}

// FuzzAnalyze requires that the analysis of any trace succeeds or returns ErrRun.
func FuzzAnalyze(f *testing.F) {
	p := plantest.Made(f, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 2})
	s, err := tracetest.Simulate(p, uneven(2), 2)
	require.NoError(f, err)
	weir, err := s.Weir()
	require.NoError(f, err)
	f.Add(weir, 0)
	f.Add(s.OTLP(1), 1)
	f.Add([]byte(`[{"ph":"X","name":"(0F0;0B0)OVERLAP_F_B","ts":-5e15,"dur":9e15,"pid":0},{"ph":"X","name":"0RECV_F0","ts":1,"dur":9e15,"pid":0}]`), 0)
	f.Fuzz(func(t *testing.T, text []byte, ranksPerHost int) {
		all, err := traces.ReadFrom("x.json", bytes.NewReader(text))
		if err != nil || len(all) == 0 {
			return
		}
		if _, err := timing.Analyze(timing.Request{Traces: all, RanksPerHost: ranksPerHost}); err != nil {
			require.ErrorIs(t, err, timing.ErrRun)
		}
	})
}

// A rank that waits until other ranks take its messages has no gap, in evaluation and in training.
func TestSendersThatWait(t *testing.T) {
	for _, mode := range []schedule.Mode{schedule.ForwardOnly, schedule.Training} {
		for _, capacity := range []int{0, 1, 2, schedule.Unlimited} {
			for slow := range 4 {
				p := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(4, 4), Microbatches: 8, Mode: mode})
				p, err := lower.Transfers(p, capacity)
				require.NoError(t, err)
				costs := uneven(4)
				tracetest.Slow(p, costs, slow, 1.5)
				want, err := simulate.Run(p, costs, capacity)
				require.NoError(t, err)
				r := reportOf(t, timing.Request{Traces: kineto(t, simulated(t, p, costs, 2), "gpu_user_annotation"), Plan: p})
				for rank, one := range r.PerRank {
					require.Zero(t, one.Gap, "%v, capacity %d, rank %d slow, rank %d", mode, capacity, slow, rank)
				}
				require.Equal(t, want.Makespan, r.Simulated.Makespan, "%v, capacity %d, rank %d slow", mode, capacity, slow)
			}
		}
	}
}

// reportOf returns the report of a request that must succeed.
func reportOf(t *testing.T, r timing.Request) *timing.Report {
	t.Helper()
	report, err := timing.Analyze(r)
	require.NoError(t, err)
	return report
}

package simulate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// timeline returns the times of all actions, one line per rank.
func timeline(t testing.TB, p *schedule.Plan, costs *simulate.Costs, capacity int) ([]string, *simulate.Report) {
	lines := make([]string, len(p.Programs))
	report, err := simulate.Timeline(p, costs, capacity, func(e simulate.TimedAction) {
		lines[e.Rank] += fmt.Sprintf("%v %d-%d ", e.Action, e.Start, e.End)
	})
	require.NoError(t, err)
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines, report
}

// TestSimulateByHand compares plans for two ranks with results that were computed by hand.
func TestSimulateByHand(t *testing.T) {
	const mib = 1 << 20
	oneF := []string{"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"}
	sends := []string{"0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0WAIT_F2", "1RECV_F0 1F0 1RECV_F1 1F1 1RECV_F2 1F2"}
	both := []simulate.StageCosts{{F: 2, I: 2, W: 1}}
	slowSecond := []simulate.StageCosts{{F: 1}, {F: 5}}
	for _, test := range []struct {
		name     string
		mode     schedule.Mode
		m        int
		programs []string
		facts    []schedule.StageInfo
		costs    simulate.Costs
		capacity int
		want     []string
		report   simulate.Report // Communication of each rank, and the totals
	}{
		{"no communication", schedule.Training, 2, oneF, nil, simulate.Costs{Stages: both}, schedule.Unlimited,
			[]string{"0F0 0-2 0F1 2-4 0B0 7-10 0B1 12-15", "1F0 2-4 1B0 4-7 1F1 7-9 1B1 9-12"},
			simulate.Report{Makespan: 15, Span: 15, Ideal: 10, Ranks: []simulate.RankReport{{Wait: 5}, {}}}},
		{"latency", schedule.Training, 2, oneF, nil, simulate.Costs{Stages: both, Latency: 2}, schedule.Unlimited,
			[]string{"0F0 0-2 0F1 2-4 0B0 11-14 0B1 16-19", "1F0 4-6 1B0 6-9 1F1 9-11 1B1 11-14"},
			simulate.Report{Makespan: 19, Span: 19, Ideal: 10, Ranks: []simulate.RankReport{{Wait: 9, Communication: 4}, {}}}},
		// The second message waits for the link, is on the wire from 5 to 8, and arrives at 9.
		{"bandwidth", schedule.ForwardOnly, 2, []string{"0F0 0F1", "1F0 1F1"}, nil,
			simulate.Costs{Stages: []simulate.StageCosts{{F: 2, Output: 3*mib - 1}}, Latency: 1, PerMiB: 1}, schedule.Unlimited,
			[]string{"0F0 0-2 0F1 2-4", "1F0 6-8 1F1 9-11"},
			simulate.Report{Makespan: 11, Span: 5, Ideal: 4, Ranks: []simulate.RankReport{{}, {Wait: 1, Communication: 1}}}},
		{"another link", schedule.Training, 2, oneF, nil, simulate.Costs{Stages: both, Latency: 2, Links: []simulate.LinkCosts{{From: 1, To: 0, Latency: 7}}}, schedule.Unlimited,
			[]string{"0F0 0-2 0F1 2-4 0B0 16-19 0B1 21-24", "1F0 4-6 1B0 6-9 1F1 9-11 1B1 11-14"},
			simulate.Report{Makespan: 24, Span: 24, Ideal: 10, Ranks: []simulate.RankReport{{Wait: 14, Communication: 9}, {}}}},
		{"unlimited links", schedule.ForwardOnly, 3, sends, nil, simulate.Costs{Stages: slowSecond, Latency: 1}, schedule.Unlimited,
			[]string{"0F0 0-1 0SEND_F0 1-1 0F1 1-2 0SEND_F1 2-2 0F2 2-3 0SEND_F2 3-3 0WAIT_F2 3-12", "1RECV_F0 0-2 1F0 2-7 1RECV_F1 7-7 1F1 7-12 1RECV_F2 12-12 1F2 12-17"},
			simulate.Report{Makespan: 17, Span: 15, Ideal: 15, Ranks: []simulate.RankReport{{}, {}}}},
		{"capacity 2", schedule.ForwardOnly, 3, sends, nil, simulate.Costs{Stages: slowSecond, Latency: 3}, 2,
			[]string{"0F0 0-1 0SEND_F0 1-1 0F1 1-2 0SEND_F1 2-2 0F2 2-3 0SEND_F2 3-4 0WAIT_F2 4-14", "1RECV_F0 0-4 1F0 4-9 1RECV_F1 9-9 1F1 9-14 1RECV_F2 14-14 1F2 14-19"},
			simulate.Report{Makespan: 19, Span: 15, Ideal: 15, Ranks: []simulate.RankReport{{}, {}}}},
		{"capacity 1", schedule.ForwardOnly, 3, sends, nil, simulate.Costs{Stages: slowSecond, Latency: 3}, 1,
			[]string{"0F0 0-1 0SEND_F0 1-1 0F1 1-2 0SEND_F1 2-4 0F2 4-5 0SEND_F2 5-9 0WAIT_F2 9-14", "1RECV_F0 0-4 1F0 4-9 1RECV_F1 9-9 1F1 9-14 1RECV_F2 14-14 1F2 14-19"},
			simulate.Report{Makespan: 19, Span: 15, Ideal: 15, Ranks: []simulate.RankReport{{Wait: 2, Communication: 2}, {}}}},
		{"rendezvous", schedule.ForwardOnly, 3, sends, nil, simulate.Costs{Stages: slowSecond, Latency: 1}, 0,
			[]string{"0F0 0-1 0SEND_F0 1-2 0F1 2-3 0SEND_F1 3-8 0F2 8-9 0SEND_F2 9-14 0WAIT_F2 14-14", "1RECV_F0 0-2 1F0 2-7 1RECV_F1 7-8 1F1 8-13 1RECV_F2 13-14 1F2 14-19"},
			simulate.Report{Makespan: 19, Span: 17, Ideal: 15, Ranks: []simulate.RankReport{{Wait: 6, Communication: 2}, {Wait: 2, Communication: 2}}}},
		// The pair starts when the gradient for 0B0 arrives, and the result of 0F1 is available at
		// its end.
		{"joined", schedule.Training, 2, []string{"0F0 0F1& 0B0 0B1", "1F0 1B0 1F1 1B1"}, nil, simulate.Costs{Stages: []simulate.StageCosts{{F: 2, I: 2, W: 1, Joined: 4}}}, schedule.Unlimited,
			[]string{"0F0 0-2 0F1 7-11 0B0 7-11 0B1 16-19", "1F0 2-4 1B0 4-7 1F1 11-13 1B1 13-16"},
			simulate.Report{Makespan: 19, Span: 19, Ideal: 10, Ranks: []simulate.RankReport{{Wait: 10}, {Wait: 4}}}},
		{"joined at the sum, recomputing", schedule.Training, 2, []string{"0F0 0B0& 0F1 0B1", "1F0 1B0 1F1 1B1"},
			[]schedule.StageInfo{{Recomputes: true}, {}}, simulate.Costs{Stages: []simulate.StageCosts{{F: 2, B: 3, Recompute: 5}}}, schedule.Unlimited,
			[]string{"0F0 0-2 0B0 7-17 0F1 7-17 0B1 22-30", "1F0 2-4 1B0 4-7 1F1 17-19 1B1 19-22"},
			simulate.Report{Makespan: 30, Span: 30, Ideal: 20, Ranks: []simulate.RankReport{{Wait: 10}, {Wait: 10}}}},
		{"recomputing at I, without facts", schedule.Training, 1, []string{"0F0 0I0 0W0", "1F0 1I0 1W0 1REDUCE_GRAD"}, nil,
			simulate.Costs{Stages: []simulate.StageCosts{{F: 2, I: 3, W: 4, Recompute: 5}}}, schedule.Unlimited,
			[]string{"0F0 0-2 0I0 12-20 0W0 20-24", "1F0 2-4 1I0 4-12 1W0 12-16 1REDUCE_GRAD 16-16"},
			simulate.Report{Makespan: 24, Span: 24, Ideal: 14, Ranks: []simulate.RankReport{{Wait: 10}, {}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := plantest.FromText(t, "0 1", test.m, test.programs...)
			p.Mode, p.StageInfo = test.mode, test.facts
			lines, report := timeline(t, p, &test.costs, test.capacity)
			require.Equal(t, test.want, lines)
			require.Equal(t, []int64{test.report.Makespan, test.report.Span, test.report.Ideal}, []int64{report.Makespan, report.Span, report.Ideal})
			for rank, want := range test.report.Ranks {
				require.Equal(t, want.Wait, report.Ranks[rank].Wait)
				require.Equal(t, want.Communication, report.Ranks[rank].Communication)
			}
		})
	}
}

// TestBytesByHand checks the live bytes on the two ranks of a split plan.
func TestBytesByHand(t *testing.T) {
	const resident, saved, freed, carry, output, gradient = 1000, 100, 30, 7, 5, 3
	costs := &simulate.Costs{
		Stages:   []simulate.StageCosts{{F: 1, I: 1, W: 1, Saved: saved, FreedByI: freed, Carry: carry, Output: output, Gradient: gradient}},
		Resident: []int64{resident, 0},
	}
	p := plantest.FromText(t, "0 1", 2,
		"0F0 0SEND_F0 0F1 0SEND_F1 0WAIT_F0 0WAIT_F1 0RECV_B0 0I0 0RECV_B1 0I1 0W0 0W1",
		"1RECV_F0 1F0 1I0 1SEND_B0 1W0 1RECV_F1 1F1 1B1 1SEND_B1")
	var live [2][]int64
	report, err := simulate.Timeline(p, costs, schedule.Unlimited, func(e simulate.TimedAction) { live[e.Rank] = append(live[e.Rank], e.Live.Total()) })
	require.NoError(t, err)
	const rest = saved - freed + carry // from I to W
	require.Equal(t, []int64{
		resident + saved + output, resident + saved + output, resident + 2*saved + 2*output, resident + 2*saved + 2*output,
		resident + 2*saved + output, resident + 2*saved,
		resident + 2*saved + gradient, resident + rest + saved, resident + rest + saved + gradient, resident + 2*rest, resident + rest, resident,
	}, live[0])
	require.Equal(t, []int64{output, saved, rest + gradient, rest, 0, output, saved, gradient, 0}, live[1])

	// The first rank reaches its peak at its second forward. The second rank reaches its peak at
	// its first I, which allocates its gradient and its carry before it frees memory.
	require.Equal(t, memory.ByClass{memory.Resident: resident, memory.Saved: 2 * saved, memory.Activation: 2 * output}, report.Ranks[0].Classes)
	require.Equal(t, schedule.NewAction(schedule.F, 0, 1), report.Ranks[0].PeakAt)
	require.EqualValues(t, 2, report.Ranks[0].PeakPosition)
	require.EqualValues(t, 2, report.Ranks[0].InFlight)
	require.Equal(t, memory.ByClass{memory.Saved: saved, memory.Carry: carry, memory.ActGrad: gradient}, report.Ranks[1].Classes)
	require.Equal(t, schedule.NewAction(schedule.I, 1, 0), report.Ranks[1].PeakAt)
	require.EqualValues(t, saved+carry+gradient, report.Ranks[1].Peak)
	require.EqualValues(t, 1, report.Ranks[1].InFlight)
}

// TestCriticalByHand checks the actions on the critical path.
func TestCriticalByHand(t *testing.T) {
	p := plantest.FromText(t, "0 1", 2, "0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1")
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 2, B: 3}}, Latency: 2}
	report := reportOf(t, p, costs, schedule.Unlimited)
	require.Equal(t, []simulate.Stretch{
		{Rank: 0, First: 0, Last: 0, Start: 0, End: 2},
		{Rank: 1, First: 0, Last: 3, Start: 4, End: 14},
		{Rank: 0, First: 3, Last: 3, Start: 16, End: 19},
	}, report.Critical)
	require.InDelta(t, 1-10.0/19, report.BubbleMakespan(), 1e-15)

	// For a long plan, Timeline returns the critical path.
	long := plantest.OneFOneB(2, 1, 0, 20_000, false)
	report = reportOf(t, long, costs, schedule.Unlimited)
	require.Nil(t, report.Critical)
	report, err := simulate.Timeline(long, costs, schedule.Unlimited, func(simulate.TimedAction) {})
	require.NoError(t, err)
	require.Len(t, report.Critical, 20_001)
}

// TestSimulateDeadlock checks the error for every kind of wait.
func TestSimulateDeadlock(t *testing.T) {
	for _, test := range []struct {
		name       string
		capacity   int
		ranks      [2]string
		stuckAt    schedule.Action
		text, more string
	}{
		{"computations", schedule.Unlimited, [2]string{"0B0 0F0", "1F0 1B0"}, schedule.NewAction(schedule.B, 0, 0),
			"rank 0 is at action 0, 0B0, and waits for 1B0 of rank 1; rank 1 is at action 0, 1F0, and waits for 0F0 of rank 0;", ""},
		{"split backwards", schedule.Unlimited, [2]string{"0I0 0F0", "1F0 1I0"}, schedule.NewAction(schedule.I, 0, 0), "waits for 1I0 of rank 1", ""},
		{"receives", schedule.Unlimited, [2]string{"0RECV_B0 0F0 0SEND_F0", "1RECV_F0 1F0 1SEND_B0"}, schedule.NewAction(schedule.RecvB, 0, 0),
			"rank 0 is at action 0, 0RECV_B0, and waits for 1SEND_B0 of rank 1; rank 1 is at action 0, 1RECV_F0, and waits for 0SEND_F0 of rank 0;", ""},
		{"full link", 1, [2]string{"0F0 0SEND_F0 0F1 0SEND_F1", "1F0 1B0 1SEND_B0 1B1 1SEND_B1 1RECV_F0"}, schedule.NewAction(schedule.SendF, 0, 1),
			"rank 1 is at action 4, 1SEND_B1, and waits for 0RECV_B1 of rank 0;", ""},
		{"rendezvous", 0, [2]string{"0F0 0SEND_F0 0RECV_B0", "1F0 1SEND_B0 1RECV_F0"}, schedule.NewAction(schedule.SendF, 0, 0),
			"rank 0 is at action 1, 0SEND_F0, and waits for 1RECV_F0 of rank 1; rank 1 is at action 1, 1SEND_B0, and waits for 0RECV_B0 of rank 0;", ""},
		{"waits", schedule.Unlimited, [2]string{"0F0 0SEND_F0 0WAIT_F0 0RECV_B0", "1F0 1SEND_B0 1WAIT_B0 1RECV_F0"}, schedule.NewAction(schedule.WaitF, 0, 0),
			"0WAIT_F0, and waits for 1RECV_F0 of rank 1;", "1WAIT_B0, and waits for 0RECV_B0 of rank 0;"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := plantest.FromText(t, "0 1", 2, test.ranks[0], test.ranks[1])
			_, err := simulate.Run(p, &simulate.Costs{Stages: []simulate.StageCosts{{F: 1}}}, test.capacity)
			require.ErrorIs(t, err, waitgraph.ErrDeadlock)
			require.ErrorIs(t, err, check.ErrInvalidPlan)
			require.ErrorContains(t, err, test.text)
			require.ErrorContains(t, err, test.more)
			invalid, ok := errors.AsType[*check.Error](err)
			require.True(t, ok)
			require.Equal(t, test.stuckAt, invalid.Faults[0].Action)
		})
	}
	p := plantest.Expand(plantest.OneFOneB(18, 1, 0, 2, false))
	for r := range 17 {
		plantest.Swap(&p.Programs[r][0].Body, schedule.NewAction(schedule.F, r, 0), schedule.NewAction(schedule.B, r, 0))
	}
	_, err := simulate.Run(p, &simulate.Costs{Stages: []simulate.StageCosts{{F: 1}}}, schedule.Unlimited)
	require.ErrorIs(t, err, waitgraph.ErrDeadlock)
	require.ErrorContains(t, err, "Ranks 16 and 17 wait for each other: rank 16 is at action 0, 16B0, and waits for 17B0 of rank 17;")
}

// TestSimulateNamesTheCircleOfCheck changes valid plans so that ranks deadlock, and requires the
// same waiting cycle from Run and from package check.
func TestSimulateNamesTheCircleOfCheck(t *testing.T) {
	rng := rand.New(rand.NewPCG(plantest.Seed(), 7))
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 1, I: 1, W: 1}}}
	found := 0
	for range 30_000 {
		valid, capacity := plantest.Grow(rng, plantest.DrawFeatures(rng))
		p := plantest.Mutate(valid, rng)
		invalid, ok := errors.AsType[*check.Error](check.Links(p, capacity))
		if !ok || slices.ContainsFunc(invalid.Faults, func(f check.Fault) bool { return f.Code != check.Deadlock }) {
			continue
		}
		_, err := simulate.Run(p, costs, capacity)
		require.Equal(t, error(invalid), err, "seed %d, capacity %d\n%s", plantest.Seed(), capacity, plantest.Text(t, p))
		found++
	}
	require.Greater(t, found, 50)
}

// Run rejects a plan that cannot run with the faults of package check.
func TestSimulateRefuses(t *testing.T) {
	good := func() *schedule.Plan { return plantest.FromText(t, "0 1", 2, "0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1") }
	body := func(p *schedule.Plan) []schedule.Action { return p.Programs[0][0].Body }
	for _, test := range []struct {
		name  string
		alter func(p *schedule.Plan)
		code  check.Code
		text  string
	}{
		{"stage", func(p *schedule.Plan) { body(p)[1] = schedule.NewAction(schedule.F, 2, 1) }, check.UnknownStage, ""},
		{"rank", func(p *schedule.Plan) { body(p)[1] = schedule.NewAction(schedule.F, 1, 1) }, check.WrongRank, ""},
		{"microbatch", func(p *schedule.Plan) { body(p)[1] = schedule.NewAction(schedule.F, 0, 2) }, check.UnknownMicrobatch, ""},
		{"microbatch of a repeat", func(p *schedule.Plan) { p.Programs[0][0].Repeat, p.Programs[0][0].Stride = 2, -1 }, check.UnknownMicrobatch, ""},
		{"send to itself", func(p *schedule.Plan) { body(p)[1] = schedule.NewAction(schedule.SendB, 0, 1) }, check.Unexpected, ""},
		{"kind", func(p *schedule.Plan) { body(p)[1] = schedule.NewAction(schedule.Offload, 0, 1) }, check.Unexpected, ""},
		{"join at the end", func(p *schedule.Plan) { body(p)[3] = body(p)[3].WithJoin(true) }, check.BadJoin, ""},
		{"join of three", func(p *schedule.Plan) { body(p)[0], body(p)[1] = body(p)[0].WithJoin(true), body(p)[1].WithJoin(true) }, check.BadJoin, ""},
		{"copies", func(p *schedule.Plan) { p.Placement.Copies = 3 }, check.Malformed, "3 copies of a model in 2 stages"},
		{"no programs", func(p *schedule.Plan) { p.Programs = nil }, check.Malformed, "2 ranks and 0 programs"},
		{"order of a link", func(p *schedule.Plan) {
			*p = *plantest.FromText(t, "0 1", 2, "0F0 0SEND_F0 0F1 0SEND_F1", "1RECV_F1 1RECV_F0")
		}, check.Pairing, "Rank 1, action 0: 1RECV_F1 finds the message for 1RECV_F0 first, because rank 0 sent that message earlier; send and receive in the same order."},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := good()
			test.alter(p)
			_, err := simulate.Run(p, &simulate.Costs{Stages: []simulate.StageCosts{{F: 1}}}, schedule.Unlimited)
			require.ErrorIs(t, err, check.ErrInvalidPlan)
			require.Contains(t, plantest.CodesOf(err), test.code)
			require.ErrorContains(t, err, test.text)
			if test.text == "" {
				require.Equal(t, check.Plan(p), err)
			}
		})
	}
}

// FuzzSimulate requires that Run terminates for any plan.
func FuzzSimulate(f *testing.F) {
	for _, transfers := range []bool{false, true} {
		f.Add([]byte(plantest.Text(f, plantest.OneFOneB(3, 2, 2, 9, transfers))))
		f.Add([]byte(plantest.Text(f, plantest.Expand(plantest.OneFOneB(2, 1, 0, 3, transfers)))))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := schedule.ParseText(strings.NewReader(string(data)))
		if err != nil {
			return
		}
		for rank := range p.Programs {
			if p.Actions(rank) > 10_000 {
				return
			}
		}
		costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 3, I: 2, W: 1, Joined: 4, Output: 1 << 20, Gradient: 1 << 19, Saved: 5, FreedByI: 1, Carry: 1}}, Latency: 1, PerMiB: 1}
		for capacity := schedule.Unlimited; capacity < 3; capacity++ {
			for _, run := range []func(*schedule.Plan, *simulate.Costs, int) (*simulate.Report, error){simulate.Run, simulate.Leaping} {
				if _, err := run(p, costs, capacity); err != nil {
					require.ErrorIs(t, err, check.ErrInvalidPlan)
				}
			}
		}
	})
}

// TestPeaksOfCopies compares the peaks of named schedules, whose copies of weights end within the
// last repeat of a segment, with the peaks of the unrolled plans.
func TestPeaksOfCopies(t *testing.T) {
	small := simulate.StageCosts{F: 1, I: 1, W: 1, Saved: 64, FreedByI: 32, Carry: 16, Output: 8, Gradient: 8, ForwardWeights: 900, BackwardWeights: 700}
	large := small
	large.Saved, large.FreedByI, large.Carry, large.Output, large.Gradient = 640, 320, 160, 512, 512
	for _, s := range schedule.Schedules() {
		placement, err := s.Place(2, 8)
		if err != nil {
			placement, err = s.Place(2, 2*s.PerRank)
		}
		require.NoError(t, err)
		params := schedule.Params{Placement: placement, Microbatches: 40}
		if s.Name == "seq1f1b" {
			params.Slices = 2
		}
		p := plantest.Made(t, s.Rule, params)
		costs := &simulate.Costs{}
		for stage := range placement.Stages() { // later stages of a rank hold more
			costs.Stages = append(costs.Stages, []simulate.StageCosts{small, large}[stage/placement.Ranks%2])
		}
		for _, when := range []lower.Quantizing{lower.BeforeUse, lower.AtStart} {
			quantized, err := lower.Quantize(p, slices.Repeat([]schedule.StageInfo{{Quantizes: true}}, placement.Stages()), when)
			require.NoError(t, err, s.Name)
			flat := *quantized
			flat.Programs = make([][]schedule.Segment, len(p.Programs))
			for rank := range flat.Programs {
				flat.Programs[rank] = []schedule.Segment{{Body: slices.Collect(quantized.All(rank)), Repeat: 1}}
			}
			got := reportOf(t, quantized, costs, schedule.Unlimited)
			want := reportOf(t, &flat, costs, schedule.Unlimited)
			for rank := range want.Ranks {
				require.Equal(t, want.Ranks[rank].Peak, got.Ranks[rank].Peak, "%s, rank %d", s.Name, rank)
				require.Equal(t, want.Ranks[rank].PeakPosition, got.Ranks[rank].PeakPosition, "%s, rank %d", s.Name, rank)
			}
		}
	}
}

// The times of Each replace the times of stages, and a joined pair takes their sum. Run rejects times out
// of range.
func TestEachComputationHasItsTime(t *testing.T) {
	plan := plantest.Made(t, schedule.OneFOneB, schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 3})
	costs := &simulate.Costs{Latency: 1, Stages: []simulate.StageCosts{{F: 99, I: 99, W: 99}}}
	costs.Each = func(a schedule.Action) int64 {
		require.Zero(t, a.Drop())
		require.False(t, a.Joined())
		if a.Kind() == schedule.F {
			return int64(1 + a.Microbatch())
		}
		return 10
	}
	var ends []int64
	report, err := simulate.Timeline(plan, costs, schedule.Unlimited, func(e simulate.TimedAction) {
		if e.Rank == 1 {
			ends = append(ends, e.End)
		}
	})
	require.NoError(t, err)
	// Rank 1 runs F of 1 from 2, B of 10, F of 2, and B. Rank 0 receives the first gradient at 14 and
	// sends its last output at 27, so rank 1 runs F of 3 from 28, and B.
	require.Equal(t, []int64{3, 13, 15, 25, 31, 41}, ends)
	require.EqualValues(t, 1+2+3+30, report.Ranks[1].Busy)

	pair := plantest.Made(t, schedule.DualPipeV, schedule.Params{Placement: schedule.Wave(1, 2), Microbatches: 6})
	costs.Stages[0].Joined = 1 // ignored, because Each returns the times
	one := reportOf(t, pair, costs, schedule.Unlimited)
	require.Equal(t, one.Ideal, one.Makespan)

	for _, bad := range []int64{-1, 1 << 60} {
		costs.Each = func(schedule.Action) int64 { return bad }
		_, err = simulate.Run(plan, costs, schedule.Unlimited)
		require.ErrorIs(t, err, simulate.ErrCosts)
		require.ErrorContains(t, err, "it must be 0 to")
	}
}

// Resident bytes belong to stages, so each rank has the resident bytes of its stages.
func TestResidentFollowsThePlacement(t *testing.T) {
	costs := &simulate.Costs{Resident: []int64{5, 7}}
	for _, bytes := range []int64{1000, 200, 30, 4} {
		costs.Stages = append(costs.Stages, simulate.StageCosts{F: 1, I: 1, W: 1, Resident: bytes})
	}
	for _, c := range []struct {
		place schedule.Placement
		want  [2]int64
	}{
		{schedule.Looped(2, 4), [2]int64{1000 + 30 + 5, 200 + 4 + 7}},
		{schedule.Wave(2, 4), [2]int64{1000 + 4 + 5, 200 + 30 + 7}},
	} {
		plan := plantest.Made(t, schedule.BreadthFirst, schedule.Params{Placement: c.place, Microbatches: 3})
		report := reportOf(t, plan, costs, schedule.Unlimited)
		for rank, want := range c.want {
			require.Equal(t, want, report.Ranks[rank].Peak)
			require.Equal(t, want, report.Ranks[rank].Classes[memory.Resident])
		}
	}
}

// reportOf returns the report of a plan that can be simulated.
func reportOf(t require.TestingT, plan *schedule.Plan, costs *simulate.Costs, capacity int) *simulate.Report {
	r, err := simulate.Run(plan, costs, capacity)
	require.NoError(t, err)
	return r
}

// workOf returns how many actions the simulation of a plan takes.
func workOf(t require.TestingT, plan *schedule.Plan, costs *simulate.Costs, capacity int) int64 {
	work, err := simulate.Work(plan, costs, capacity)
	require.NoError(t, err)
	return work
}

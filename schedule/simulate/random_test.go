package simulate_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
	"github.com/weir-ml/weir/schedule/waitgraph"
)

// drawRanks draws a plan on several ranks, with or without transfers. Some stages recompute. Joins
// between messages may deadlock its ranks.
func drawRanks(t *rapid.T, transfers bool, runtime schedule.Runtime) *schedule.Plan {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	p, _ := plantest.Grow(rng, plantest.Features{Ranks: 4, Depth: 5, Microbatches: 8, Copies: true, Transfers: transfers, Runtime: runtime,
		Collectives: transfers && runtime.Posts()})
	for _, program := range p.Programs {
		for _, segment := range program {
			joinSome(segment.Body, rng)
		}
	}
	if rapid.Bool().Draw(t, "facts") {
		p.StageInfo = make([]schedule.StageInfo, p.Placement.Stages())
		for s := range p.StageInfo {
			p.StageInfo[s].Frozen = s < len(p.Frozen) && p.Frozen[s]
			p.StageInfo[s].Split = true
			p.StageInfo[s].Recomputes = rapid.Bool().Draw(t, "recomputes")
		}
	}
	return p
}

// joinSome joins some adjacent computations that do not depend on each other directly.
func joinSome(body []schedule.Action, rng *rand.Rand) {
	for i := 0; i+1 < len(body); i++ {
		a, b := body[i], body[i+1]
		if a.Joined() {
			i++
			continue
		}
		apart := a.Stage() != b.Stage() && a.Microbatch() != b.Microbatch()
		if rng.IntN(8) == 0 && apart && !b.Joined() && a.Kind().Compute() && b.Kind().Compute() {
			body[i] = a.WithJoin(true)
			i++
		}
	}
}

// TestSimulateAgainstNaive compares every start and end, every memory level and every total with
// the naive simulation.
func TestSimulateAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runtime := schedule.Runtime(rapid.IntRange(0, int(schedule.PyTorch215Edge)).Draw(t, "runtime"))
		transfers, capacities := rapid.Bool().Draw(t, "transfers"), []int{schedule.Unlimited}
		if transfers {
			capacities = []int{schedule.Unlimited, 0, 1, 2, 3}
		}
		p := drawOffloaded(t, drawQuantized(t, drawReplicated(t, drawRanks(t, transfers, runtime))))
		costs := drawCosts(t, p)
		for _, capacity := range capacities {
			requireNaive(t, p, costs, capacity)
		}
	})
}

// drawReplicated adds random gathers of weights and reductions of gradients to a plan.
func drawReplicated(t *rapid.T, p *schedule.Plan) *schedule.Plan {
	has := p.Kinds()
	drawn := has[schedule.Unshard] || has[schedule.ReduceGrad] || has[schedule.ZeroGrad]
	if drawn || p.Runtime.Posts() && p.HasTransfers() { // its waits for sends and for reductions go together
		return p
	}
	var err error
	if gathered := rapid.IntRange(0, 3).Draw(t, "gathered"); gathered > 1 {
		p, err = lower.Shard(p, gathered)
		require.NoError(t, err)
	}
	if level := rapid.IntRange(-1, 3).Draw(t, "level"); level >= 0 {
		p, err = lower.Reduce(p, level)
		require.NoError(t, err)
	}
	return p
}

// drawQuantized adds copies of weights to random stages of a plan.
func drawQuantized(t *rapid.T, p *schedule.Plan) *schedule.Plan {
	facts := make([]schedule.StageInfo, p.Placement.Stages())
	for s := range facts {
		facts[s].Quantizes = rapid.IntRange(0, 2).Draw(t, "quantizes") == 0
	}
	where := lower.Quantizing(rapid.IntRange(0, 1).Draw(t, "where"))
	quantized, err := lower.Quantize(p, facts, where)
	if err != nil { // the ranks deadlock
		require.ErrorIs(t, err, waitgraph.ErrDeadlock)
		return p
	}
	quantized.StageInfo = p.StageInfo
	return quantized
}

// drawOffloaded adds offloads of saved state to random stages of a plan.
func drawOffloaded(t *rapid.T, p *schedule.Plan) *schedule.Plan {
	away := make([]uint64, p.Placement.Stages())
	for s := range away {
		away[s] = rapid.Uint64Range(0, 1).Draw(t, "away")
	}
	overlap := rapid.IntRange(0, 3).Draw(t, "overlap")
	if p.Runtime.Posts() {
		return p // the plan has nothing to offload
	}
	offloaded, err := lower.Offload(p, away, overlap)
	if err != nil { // the ranks deadlock
		require.ErrorIs(t, err, waitgraph.ErrDeadlock)
		return p
	}
	return offloaded
}

func requireNaive(t require.TestingT, p *schedule.Plan, costs *simulate.Costs, capacity int) {
	want, events, err := simulateNaively(p, costs, capacity)
	got := make([][]simulate.TimedAction, len(p.Programs))
	report, fault := simulate.Timeline(p, costs, capacity, func(e simulate.TimedAction) { got[e.Rank] = append(got[e.Rank], e) })
	if err != nil {
		require.ErrorIs(t, fault, waitgraph.ErrDeadlock)
		require.ErrorIs(t, fault, check.ErrInvalidPlan)
		return
	}
	require.NoError(t, fault)
	require.Equal(t, events, got)
	checkCritical(t, report, events, costs)
	path := report.Critical
	report.Critical = nil
	require.Equal(t, want, report)

	report = reportOf(t, p, costs, capacity)
	require.Equal(t, path, report.Critical)
	report.Critical = nil
	require.Equal(t, want, report)
}

// checkCritical requires that a path covers the step from its start to its end, without gaps within
// a stretch. If bytes take no time, the gap between stretches is one latency, or 0 if the wait was
// for the receive of a message.
func checkCritical(t require.TestingT, report *simulate.Report, events [][]simulate.TimedAction, costs *simulate.Costs) {
	var last int64
	for _, r := range report.Ranks {
		last = max(last, r.Last)
	}
	path := report.Critical
	if len(path) == 0 {
		require.Zero(t, report.Makespan)
		return
	}
	require.Zero(t, path[0].Start)
	require.Equal(t, last, path[len(path)-1].End)
	for i, s := range path {
		at := s.Start
		for _, e := range events[s.Rank][s.First : s.Last+1] {
			require.LessOrEqual(t, e.Start, at)
			at = e.End
		}
		require.Equal(t, s.End, at)
		if i > 0 {
			require.LessOrEqual(t, path[i-1].End, s.Start)
			if costs.PerMiB == 0 && costs.Links == nil && costs.FarPerMiB == 0 && costs.ReplicaPerMiB == 0 {
				require.Contains(t, []int64{0, costs.Latency, costs.FarLatency, costs.ReplicaLatency}, s.Start-path[i-1].End)
			}
		}
	}
}

// TestSimulateMutants requires that Run terminates on invalid plans, with and without skipping, and
// returns an error if it cannot continue.
func TestSimulateMutants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p *schedule.Plan
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed of mutants"), 0))
		switch rapid.IntRange(0, 2).Draw(t, "plan") {
		case 0:
			p = drawRanks(t, false, schedule.Weir)
		case 1:
			p = drawRanks(t, true, schedule.Runtime(rng.IntN(2)))
		case 2:
			p = drawLanes(t)
		}
		for range rapid.IntRange(1, 4).Draw(t, "mutations") {
			program := p.Programs[rng.IntN(len(p.Programs))]
			if len(program) == 0 {
				continue
			}
			body := &program[rng.IntN(len(program))].Body
			if len(*body) == 0 {
				continue
			}
			i, k := rng.IntN(len(*body)), rng.IntN(len(*body))
			switch rng.IntN(5) {
			case 0:
				*body = slices.Delete(slices.Clone(*body), i, i+1)
			case 1:
				*body = slices.Insert(slices.Clone(*body), i, (*body)[k])
			case 2:
				(*body)[i], (*body)[k] = (*body)[k], (*body)[i]
			case 3:
				a := (*body)[i]
				(*body)[i] = schedule.NewAction(schedule.Kind(1+rng.IntN(int(schedule.WaitReduce))), a.Stage(), a.Microbatch())
			case 4:
				a := (*body)[i]
				(*body)[i] = schedule.NewAction(a.Kind(), a.Stage(), rng.IntN(p.Microbatches))
			}
		}
		costs, capacity := drawCosts(t, p), rapid.IntRange(-1, 3).Draw(t, "capacity")
		_, err := simulate.Run(p, costs, capacity)
		_, leaping := simulate.Leaping(p, costs, capacity)
		for _, err := range []error{err, leaping} {
			if err != nil {
				require.ErrorIs(t, err, check.ErrInvalidPlan)
			}
		}
	})
}

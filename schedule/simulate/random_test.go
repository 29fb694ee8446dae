package simulate_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
	"github.com/weir-ml/weir/schedule/simulate"
)

// drawRanks draws a plan on several ranks with a random placement and a random valid order of
// computations, some of which are joined.
func drawRanks(t *rapid.T) *schedule.Plan {
	ranks := rapid.IntRange(1, 4).Draw(t, "ranks")
	depth, copies := rapid.IntRange(1, 5).Draw(t, "depth"), rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "copies")
	p := &schedule.Plan{Name: "random", Placement: schedule.Looped(ranks, depth*max(copies, 1)), Microbatches: rapid.IntRange(1, 8).Draw(t, "microbatches")}
	p.Placement.Copies = copies
	stages := p.Placement.Stages()
	for s := range stages {
		p.Placement.Rank[s] = rapid.IntRange(0, ranks-1).Draw(t, "rank")
	}
	if rapid.IntRange(0, 4).Draw(t, "forward only") == 0 {
		p.Mode = schedule.ForwardOnly
	}
	if copies < 2 && rapid.IntRange(0, 2).Draw(t, "some frozen") == 0 {
		p.Frozen = rapid.SliceOfN(rapid.Bool(), stages, stages).Draw(t, "frozen")
		p.Frozen[rapid.IntRange(0, stages-1).Draw(t, "free")] = false
	}
	if copies < 2 {
		p.Slices = rapid.IntRange(0, 3).Draw(t, "slices")
	}
	if rapid.Bool().Draw(t, "facts") {
		p.Facts = make([]schedule.Facts, stages)
		for s := range p.Facts {
			p.Facts[s].Frozen = s < len(p.Frozen) && p.Frozen[s]
			p.Facts[s].Recomputes = rapid.Bool().Draw(t, "recomputes")
		}
	}
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	p.Programs = make([][]schedule.Segment, ranks)
	for _, a := range randomOrder(p, rng) {
		program := &p.Programs[p.Placement.Rank[a.Stage()]]
		if len(*program) == 0 {
			*program = []schedule.Segment{{Repeat: 1}}
		}
		(*program)[0].Body = append((*program)[0].Body, a)
	}
	for _, program := range p.Programs {
		for _, segment := range program {
			joinSome(segment.Body, rng)
		}
	}
	return p
}

// randomOrder returns the computations of a plan in a random order that respects their dependencies.
func randomOrder(p *schedule.Plan, rng *rand.Rand) []schedule.Action {
	type place struct{ stage, mb int }
	type state struct{ forward, backward, done bool }
	states := map[place]*state{}
	split := func(pl place) bool { return (pl.stage*7+pl.mb*5)%3 == 0 }
	var open []place
	for s := range p.Placement.Stages() {
		lo, hi := p.Span(s)
		for mb := lo; mb < hi; mb++ {
			states[place{s, mb}] = &state{}
			open = append(open, place{s, mb})
		}
	}
	slicesOf := max(p.Slices, 1)
	next := func(pl place) (schedule.Kind, bool) {
		st, last := states[pl], p.Placement.Last(pl.stage)
		frozen := pl.stage < len(p.Frozen) && p.Frozen[pl.stage]
		switch {
		case !st.forward:
			return schedule.F, (p.Placement.First(pl.stage) || states[place{pl.stage - 1, pl.mb}].forward) &&
				(pl.mb%slicesOf == 0 || states[place{pl.stage, pl.mb - 1}].forward)
		case !st.backward:
			ok := last || states[place{pl.stage + 1, pl.mb}].backward
			if behind := states[place{pl.stage, pl.mb + 1}]; behind != nil && (pl.mb+1)%slicesOf != 0 {
				ok = ok && behind.backward
			}
			if frozen || split(pl) {
				return schedule.I, ok
			}
			return schedule.B, ok
		}
		return schedule.W, true
	}
	// Some orders prefer forwards, others backwards.
	eager := rng.IntN(3)
	var order []schedule.Action
	for len(open) > 0 {
		i := rng.IntN(len(open))
		pl := open[i]
		kind, ok := next(pl)
		if !ok || eager == 1 && kind == schedule.F && rng.IntN(4) > 0 || eager == 2 && kind == schedule.W && rng.IntN(8) > 0 {
			continue
		}
		order = append(order, schedule.Act(kind, pl.stage, pl.mb))
		st := states[pl]
		frozen := pl.stage < len(p.Frozen) && p.Frozen[pl.stage]
		switch kind {
		case schedule.F:
			st.forward, st.done = true, !p.HasBackward(pl.stage)
		case schedule.B:
			st.backward, st.done = true, true
		case schedule.I:
			st.backward, st.done = true, frozen
		case schedule.W:
			st.done = true
		}
		if st.done {
			open = slices.Delete(open, i, i+1)
		}
	}
	return order
}

// joinSome joins some adjacent computations that do not depend on each other directly.
func joinSome(body []schedule.Action, rng *rand.Rand) {
	for i := 0; i+1 < len(body); i++ {
		a, b := body[i], body[i+1]
		near := a.Stage() == b.Stage() || a.Microbatch() == b.Microbatch()
		if rng.IntN(8) == 0 && !near && a.Kind().Compute() && b.Kind().Compute() {
			body[i] = a.WithJoin(true)
			i++
		}
	}
}

// withTransfers adds transfers to a plan of computations. Messages are sent immediately or slightly
// later, and received in the order of their computations, before they are needed. Waits follow their
// sends at a distance, or are absent.
func withTransfers(p *schedule.Plan, rng *rand.Rand) *schedule.Plan {
	lowered := *p
	programs := make([][]schedule.Action, p.Placement.Ranks)
	receives := map[[3]int][]schedule.Action{} // by link: the receives of sent messages that have not been added to a program
	waits := make([][]schedule.Action, p.Placement.Ranks)
	oneQueue := func(dir int) int {
		if p.Runtime == schedule.PyTorch {
			return 0
		}
		return dir
	}
	style, hurry := rng.IntN(3), 1+rng.IntN(6) // of the waits and of the receives

	flush := func(link [3]int, upTo schedule.Action) {
		for len(receives[link]) > 0 {
			a := receives[link][0]
			receives[link] = receives[link][1:]
			programs[link[1]] = append(programs[link[1]], a)
			if a == upTo {
				return
			}
		}
	}
	wait := func(rank int, all bool) {
		for len(waits[rank]) > 0 && (all || rng.IntN(3) == 0) {
			programs[rank] = append(programs[rank], waits[rank][0])
			waits[rank] = waits[rank][1:]
		}
	}
	for _, a := range merged(p) {
		s, mb, rank := a.Stage(), a.Microbatch(), p.Placement.Rank[a.Stage()]
		receive, send, await, from, to, dir := schedule.RecvF, schedule.SendF, schedule.WaitF, s-1, s+1, 0
		switch a.Kind() {
		case schedule.B, schedule.I:
			receive, send, await, from, to, dir = schedule.RecvB, schedule.SendB, schedule.WaitB, s+1, s-1, 1
		case schedule.W:
			from, to = s, s
		}
		if crosses(p, from, s) {
			if want, link := schedule.Act(receive, s, mb), [3]int{p.Placement.Rank[from], rank, oneQueue(dir)}; slices.Contains(receives[link], want) {
				flush(link, want)
			}
		}
		wait(rank, false)
		programs[rank] = append(programs[rank], a)
		if crosses(p, s, to) {
			programs[rank] = append(programs[rank], schedule.Act(send, s, mb))
			link := [3]int{rank, p.Placement.Rank[to], oneQueue(dir)}
			receives[link] = append(receives[link], schedule.Act(receive, to, mb))
			if rng.IntN(hurry) == 0 {
				flush(link, 0)
			}
			if style > 0 {
				waits[rank] = append(waits[rank], schedule.Act(await, s, mb))
			}
			if style == 1 {
				wait(rank, true)
			}
		}
	}
	lowered.Programs = nil
	for rank, program := range programs {
		wait(rank, true)
		program = programs[rank]
		var segments []schedule.Segment
		if len(program) > 0 {
			joinSome(program, rng)
			segments = []schedule.Segment{{Body: program, Repeat: 1}}
		}
		lowered.Programs = append(lowered.Programs, segments)
	}
	return &lowered
}

// merged returns the computations of all ranks in a valid order, without joins.
func merged(p *schedule.Plan) []schedule.Action {
	lists := make([][]schedule.Action, p.Placement.Ranks)
	for rank := range lists {
		lists[rank] = slices.Collect(p.All(rank))
	}
	done := map[schedule.Action]bool{}
	back := func(s, mb int) bool {
		return done[schedule.Act(schedule.B, s, mb)] || done[schedule.Act(schedule.I, s, mb)]
	}
	var order []schedule.Action
	for moved := true; moved; {
		moved = false
		for rank, list := range lists {
			if len(list) == 0 {
				continue
			}
			a := list[0].WithJoin(false)
			s, mb := a.Stage(), a.Microbatch()
			switch a.Kind() {
			case schedule.F:
				if !p.Placement.First(s) && !done[schedule.Act(schedule.F, s-1, mb)] {
					continue
				}
			case schedule.B, schedule.I:
				if !p.Placement.Last(s) && !back(s+1, mb) {
					continue
				}
			}
			lists[rank], moved = list[1:], true
			done[a] = true
			order = append(order, a)
		}
	}
	return order
}

// TestSimulateAgainstNaive compares every start and end, every memory level and every total with
// the naive simulation.
func TestSimulateAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, capacities := drawRanks(t), []int{schedule.Unlimited}
		if rapid.Bool().Draw(t, "PyTorch") {
			p.Runtime = schedule.PyTorch
		}
		if rapid.Bool().Draw(t, "transfers") {
			p = withTransfers(p, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed of transfers"), 0)))
			capacities = []int{schedule.Unlimited, 0, 1, 2, 3}
		}
		p = drawOffloaded(t, drawQuantized(t, drawReplicated(t, p)))
		costs := drawCosts(t, p)
		for _, capacity := range capacities {
			requireNaive(t, p, costs, capacity)
		}
	})
}

// drawReplicated adds random gathers of weights and reductions of gradients to a plan.
func drawReplicated(t *rapid.T, p *schedule.Plan) *schedule.Plan {
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
	facts := make([]schedule.Facts, p.Placement.Stages())
	for s := range facts {
		facts[s].Quantizes = rapid.IntRange(0, 2).Draw(t, "quantizes") == 0
	}
	where := lower.Quantizing(rapid.IntRange(0, 1).Draw(t, "where"))
	quantized, err := lower.Quantize(p, facts, where)
	if err != nil { // the ranks deadlock
		require.ErrorIs(t, err, check.ErrDeadlock)
		return p
	}
	quantized.Facts = p.Facts
	return quantized
}

// drawOffloaded adds offloads of saved state to random stages of a plan.
func drawOffloaded(t *rapid.T, p *schedule.Plan) *schedule.Plan {
	away := make([]uint64, p.Placement.Stages())
	for s := range away {
		away[s] = rapid.Uint64Range(0, 1).Draw(t, "away")
	}
	overlap := rapid.IntRange(0, 3).Draw(t, "overlap")
	if p.Runtime == schedule.PyTorch {
		return p // the plan has nothing to offload
	}
	offloaded, err := lower.Offload(p, away, overlap)
	if err != nil { // the ranks deadlock
		require.ErrorIs(t, err, check.ErrDeadlock)
		return p
	}
	return offloaded
}

func requireNaive(t require.TestingT, p *schedule.Plan, costs *simulate.Costs, capacity int) {
	want, events, err := simulateNaively(p, costs, capacity)
	got := make([][]simulate.Event, len(p.Programs))
	report, fault := simulate.Timeline(p, costs, capacity, func(e simulate.Event) { got[e.Rank] = append(got[e.Rank], e) })
	if err != nil {
		require.ErrorIs(t, fault, check.ErrDeadlock)
		require.ErrorIs(t, fault, check.ErrInvalidPlan)
		return
	}
	require.NoError(t, fault)
	require.Equal(t, events, got)
	checkCritical(t, report, events, costs)
	path := report.Critical
	report.Critical = nil
	require.Equal(t, want, report)

	report, err = simulate.Run(p, costs, capacity)
	require.NoError(t, err)
	require.Equal(t, path, report.Critical)
	report.Critical = nil
	require.Equal(t, want, report)
}

// checkCritical requires that a path covers the step from its start to its end, without gaps within
// a stretch. If bytes take no time, the gap between stretches is one latency, or 0 if the wait was
// for the receive of a message.
func checkCritical(t require.TestingT, report *simulate.Report, events [][]simulate.Event, costs *simulate.Costs) {
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
			p = drawRanks(t)
		case 1:
			p = drawRanks(t)
			p.Runtime = schedule.Runtime(rng.IntN(2))
			p = withTransfers(p, rng)
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
				(*body)[i] = schedule.Act(schedule.Kind(1+rng.IntN(int(schedule.WaitReduce))), a.Stage(), a.Microbatch())
			case 4:
				a := (*body)[i]
				(*body)[i] = schedule.Act(a.Kind(), a.Stage(), rng.IntN(p.Microbatches))
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

package simulate_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
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

// requireLeaps requires that the results with and without skipping are equal, and counts the plans of which
// skipping saved more than half of the actions.
func requireLeaps(t *rapid.T, p *schedule.Plan, capacity int, saved *int) {
	requireLeapsAt(t, p, drawCosts(t, p), capacity, saved)
}

func requireLeapsAt(t *rapid.T, p *schedule.Plan, costs *simulate.Costs, capacity int, saved *int) {
	want, work, err := simulate.InFull(plantest.Expand(p), costs, capacity)
	got, fault := simulate.Leaping(p, costs, capacity)
	if err != nil {
		require.Error(t, fault)
		if errors.Is(err, waitgraph.ErrDeadlock) {
			require.Equal(t, err, fault)
		}
		return
	}
	require.NoError(t, fault)
	require.Equal(t, want, got)
	nested, fault := simulate.Leaping(plantest.Nested(p, rand.New(rand.NewPCG(1, uint64(p.Microbatches)))), costs, capacity)
	require.NoError(t, fault)
	require.Equal(t, want, nested)
	few := workOf(t, p, costs, capacity)
	if few < work/2 {
		*saved++
	}
}

// requireSaved requires that skipping saved much in several plans. A sum over all plans would depend on
// the longest ones, which may have little to skip; so may the few plans that rapid draws with -short.
func requireSaved(t *testing.T, saved int) {
	if !testing.Short() {
		require.Greater(t, saved, 4, "plans of which skipping saves more than half")
	}
}

// TestLeaps runs all schedules, with and without transfers.
func TestLeaps(t *testing.T) {
	saved := 0
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(schedule.Schedules()).Draw(t, "schedule")
		ranks, most := rapid.IntRange(1, 6).Draw(t, "ranks"), 1000
		if rapid.IntRange(0, 9).Draw(t, "many") == 0 { // warm-ups are segments
			ranks, most = 20, 60
		}
		placement, err := s.Place(ranks, ranks*s.PerRank)
		if err != nil {
			t.Skip(err)
		}
		p, err := s.Rule(schedule.Params{Placement: placement, Microbatches: rapid.IntRange(1, most).Draw(t, "microbatches")})
		if err != nil {
			t.Skip(err)
		}
		capacity := rapid.SampledFrom([]int{schedule.Unlimited, 0, 1, 2, 3, 40, 500}).Draw(t, "capacity")
		if rapid.Bool().Draw(t, "PyTorch") {
			p.Runtime = schedule.Runtime(rapid.IntRange(1, int(schedule.PyTorch215Edge)).Draw(t, "runtime"))
		}
		if ranks > 1 && rapid.Bool().Draw(t, "transfers") {
			if p, err = lower.Transfers(p, capacity); err != nil {
				t.Skip(err)
			}
		}
		p = drawOffloaded(t, drawReplicated(t, p))
		requireLeaps(t, p, capacity, &saved)
	})
	requireSaved(t, saved)
}

// TestLeapsEndAtAReload runs a plan in which a single backward takes a copy from far memory, long after the first
// repeats. The copy arrives after the backward could start.
func TestLeapsEndAtAReload(t *testing.T) {
	const microbatches, away = 3000, 2000
	act := func(kind schedule.Kind, mb int) schedule.Action { return schedule.NewAction(kind, 0, mb) }
	plan := &schedule.Plan{Mode: schedule.Training, Placement: schedule.Looped(1, 1), Microbatches: microbatches, OffloadSlots: []uint64{1}, Programs: [][]schedule.Segment{{
		{Body: []schedule.Action{act(schedule.F, 0)}, Repeat: microbatches, Stride: 1},
		{Body: []schedule.Action{act(schedule.Offload, away), act(schedule.WaitOffload, away), act(schedule.Reload, away)}, Repeat: 1},
		{Body: []schedule.Action{act(schedule.B, 0)}, Repeat: microbatches, Stride: 1},
	}}}
	require.NoError(t, check.Links(plan, schedule.Unlimited))
	costs := &simulate.Costs{FarPerMiB: 2500, Stages: []simulate.StageCosts{{F: 1, B: 1, Saved: 1 << 20}}}
	want, _, err := simulate.InFull(plan, costs, schedule.Unlimited)
	require.NoError(t, err)
	require.EqualValues(t, microbatches+2500+away+500+microbatches-away, want.Makespan)
	got, err := simulate.Leaping(plan, costs, schedule.Unlimited)
	require.NoError(t, err)
	require.Equal(t, want, got)
	work := workOf(t, plan, costs, schedule.Unlimited)
	require.Less(t, work, int64(200), "skipping saves few actions")
}

// TestLeapsOfLanes runs plans that interleave all kinds of all stages.
func TestLeapsOfLanes(t *testing.T) {
	saved := 0
	rapid.Check(t, func(t *rapid.T) {
		p, capacity := drawLanes(t), rapid.SampledFrom([]int{schedule.Unlimited, 0, 1, 2, 30, 200}).Draw(t, "capacity")
		if rapid.Bool().Draw(t, "transfers") {
			sendInLanes(p, rapid.Bool().Draw(t, "waits at the end"))
		} else {
			rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed of joins"), 0))
			for _, program := range p.Programs {
				for _, segment := range program {
					joinSome(segment.Body, rng)
				}
			}
		}
		requireLeaps(t, p, capacity, &saved)
	})
	requireSaved(t, saved)
}

// TestLeapsOverGrowingWaits simulates a rank that waits for two other ranks alternately, one of which is
// slightly slower. Each wait for the slower rank is longer by 1 than the previous wait, and counts as
// communication up to the latency.
func TestLeapsOverGrowingWaits(t *testing.T) {
	const n, latency = 900, 300
	p := &schedule.Plan{Name: "growing", Mode: schedule.ForwardOnly, Microbatches: 2 * n,
		Placement: schedule.Placement{Ranks: 5, Rank: []int{3, 0, 2, 4, 1, 2}, Copies: 2}}
	for _, body := range [][]schedule.Action{
		{schedule.NewAction(schedule.F, 1, 0)}, {schedule.NewAction(schedule.F, 4, n)}, {schedule.NewAction(schedule.F, 2, 0), schedule.NewAction(schedule.F, 5, n)},
		{schedule.NewAction(schedule.F, 0, 0)}, {schedule.NewAction(schedule.F, 3, n)},
	} {
		p.Programs = append(p.Programs, []schedule.Segment{{Body: body, Repeat: n, Stride: 1}})
	}
	costs := &simulate.Costs{
		Stages: []simulate.StageCosts{{F: 1000}, {}, {F: 1}, {F: 1001}, {}, {F: 1}},
		Links:  []simulate.LinkCosts{{From: 3, To: 0, Latency: latency}, {From: 1, To: 2, Latency: latency}},
	}
	report, err := simulate.Leaping(p, costs, schedule.Unlimited)
	require.NoError(t, err)
	require.EqualValues(t, latency*(latency-1)/2+(n-latency)*latency, report.Ranks[2].Communication)
	require.EqualValues(t, 1001*n+latency+1, report.Ranks[2].Last)
	work := workOf(t, p, costs, schedule.Unlimited)
	require.Less(t, work, int64(n))
}

// TestLeapsOverShrinkingWaits simulates a rank that sends, computes for longer in each repeat, and then
// waits until a busy rank has received. Its communication time shrinks by 1 in each repeat. After
// 900 repeats it no longer waits; after 1600 repeats the other rank waits for it.
func TestLeapsOverShrinkingWaits(t *testing.T) {
	const n, latency = 3000, 300
	p := &schedule.Plan{Name: "shrinking", Mode: schedule.ForwardOnly, Microbatches: 3 * n,
		Placement: schedule.Placement{Ranks: 5, Rank: []int{2, 0, 1, 3, 0, 0, 4, 1, 1}, Copies: 3}}
	act := func(kind schedule.Kind, stage int) schedule.Action { return schedule.NewAction(kind, stage, stage/3*n) }
	for _, body := range [][]schedule.Action{
		{act(schedule.RecvF, 1), act(schedule.F, 1), act(schedule.SendF, 1), act(schedule.RecvF, 4), act(schedule.F, 4), act(schedule.F, 5), act(schedule.WaitF, 1)},
		{act(schedule.RecvF, 7), act(schedule.F, 7), act(schedule.F, 8), act(schedule.RecvF, 2), act(schedule.F, 2)},
		{act(schedule.F, 0), act(schedule.SendF, 0)}, {act(schedule.F, 3), act(schedule.SendF, 3)}, {act(schedule.F, 6), act(schedule.SendF, 6)},
	} {
		p.Programs = append(p.Programs, []schedule.Segment{{Body: body, Repeat: n, Stride: 1}})
	}
	costs := &simulate.Costs{
		Stages: []simulate.StageCosts{{F: 1000}, {F: 1}, {}, {F: 1001}, {}, {}, {F: 1000}, {}, {}},
		Links:  []simulate.LinkCosts{{From: 0, To: 1, Latency: latency}, {From: 4, To: 1, Latency: 900}},
	}
	report, err := simulate.Leaping(p, costs, schedule.Unlimited)
	require.NoError(t, err)
	require.EqualValues(t, latency*(latency+1)/2, report.Ranks[0].Communication)
	require.EqualValues(t, 1001*(n-1)+1+latency, report.Ranks[1].Last)
	work := workOf(t, p, costs, schedule.Unlimited)
	require.Less(t, work, int64(6*n)) // instead of at least 18n
}

// TestLeapsOverBacklog simulates a link on which two messages collide at the start. Each later message
// waits slightly less for the link, and the thousandth does not wait.
func TestLeapsOverBacklog(t *testing.T) {
	const n = 2000
	p := &schedule.Plan{Name: "backlog", Mode: schedule.ForwardOnly, Microbatches: n, Placement: schedule.Placement{Ranks: 2, Rank: []int{0, 0, 1}}}
	first, pass, last := schedule.NewAction(schedule.F, 0, 0), schedule.NewAction(schedule.F, 1, 0), schedule.NewAction(schedule.F, 2, 0)
	p.Programs = [][]schedule.Segment{{
		{Body: []schedule.Action{first, first.Shift(1), pass, pass.Shift(1)}, Repeat: 1},
		{Body: []schedule.Action{first.Shift(2), pass.Shift(2)}, Repeat: n - 2, Stride: 1},
	}, {{Body: []schedule.Action{last}, Repeat: n, Stride: 1}}}
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 1000}, {Output: 1 << 20}, {F: 1}}, PerMiB: 999}
	report, err := simulate.Leaping(p, costs, schedule.Unlimited)
	require.NoError(t, err)
	require.EqualValues(t, 1000*998+(n-1001)*999, report.Ranks[1].Communication)
	require.EqualValues(t, 1000*n+1000, report.Ranks[1].Last)
	work := workOf(t, p, costs, schedule.Unlimited)
	require.Less(t, work, int64(n))
}

// TestDeadlockBehindLeaps stops one rank halfway. The error contains the exact position of the
// other rank.
func TestDeadlockBehindLeaps(t *testing.T) {
	p := plantest.OneFOneB(2, 1, 0, 1_000_000, false)
	p.Programs[1][0].Repeat = 500_000
	_, err := simulate.Run(p, &simulate.Costs{Stages: []simulate.StageCosts{{F: 3, B: 7}}, Latency: 1}, schedule.Unlimited)
	require.ErrorIs(t, err, waitgraph.ErrDeadlock)
	require.ErrorContains(t, err, "Rank 0 waits for an action that never runs: rank 0 is at action 1000002, 0B500000, and waits for 1B500000 of rank 1; rank 1 ends without running it;")
}

// TestLeapsOverKinks simulates ranks that wait for several other ranks of nearly equal speed, so the
// slowest of them, and the state of messages, change after hundreds of repeats.
func TestLeapsOverKinks(t *testing.T) {
	saved := 0
	rapid.Check(t, func(t *rapid.T) {
		const each = 600
		ranks, depth, copies := rapid.IntRange(2, 6).Draw(t, "ranks"), rapid.IntRange(2, 3).Draw(t, "depth"), rapid.IntRange(2, 4).Draw(t, "copies")
		p := &schedule.Plan{Name: "kinks", Mode: schedule.ForwardOnly, Microbatches: copies * each,
			Placement: schedule.Placement{Ranks: ranks, Copies: copies}, Programs: make([][]schedule.Segment, ranks)}
		costs := &simulate.Costs{}
		bodies := make([][]schedule.Action, ranks)
		for range depth * copies {
			p.Placement.Rank = append(p.Placement.Rank, rapid.IntRange(0, ranks-1).Draw(t, "rank"))
		}
		for s := range depth * copies {
			stage := s%copies*depth + s/copies // all first stages, then all second stages
			rank := p.Placement.Rank[stage]
			bodies[rank] = append(bodies[rank], schedule.NewAction(schedule.F, stage, s%copies*each))
			cost := rapid.Int64Range(0, 200).Draw(t, "F")
			if p.Placement.First(stage) {
				cost = 1000 + cost/25
			}
			costs.Stages = append(costs.Stages, simulate.StageCosts{F: cost})
		}
		for rank, body := range bodies {
			if len(body) > 0 {
				p.Programs[rank] = []schedule.Segment{{Body: body, Repeat: each, Stride: 1}}
			}
			for peer := range ranks {
				if peer != rank {
					costs.Links = append(costs.Links, simulate.LinkCosts{From: rank, To: peer, Latency: rapid.Int64Range(0, 1500).Draw(t, "latency")})
				}
			}
		}
		capacity := rapid.SampledFrom([]int{schedule.Unlimited, 0, 1, 2}).Draw(t, "capacity")
		if rapid.Bool().Draw(t, "transfers") {
			sendInLanes(p, false)
		}
		requireLeapsAt(t, p, costs, capacity, &saved)
	})
	requireSaved(t, saved)
}

// drawLanes draws a plan on several ranks in which each kind of each stage follows its dependency in the
// same repeat or a few repeats later. Some plans with descending microbatches, or with different orders
// within a group, are invalid.
func drawLanes(t *rapid.T) *schedule.Plan {
	ranks, stages := rapid.IntRange(1, 4).Draw(t, "ranks"), rapid.IntRange(1, 5).Draw(t, "stages")
	group, groups := rapid.IntRange(1, 3).Draw(t, "group"), rapid.IntRange(1, 300).Draw(t, "groups")
	p := &schedule.Plan{Name: "lanes", Microbatches: group * groups, Placement: schedule.Placement{Ranks: ranks}}
	for range stages {
		p.Placement.Rank = append(p.Placement.Rank, rapid.IntRange(0, ranks-1).Draw(t, "rank"))
	}
	var lanes []plantest.Lane
	lag := func() int {
		return rapid.SampledFrom([]int{0, 0, 1, 2, 40, groups}).Draw(t, "lag")
	}
	offset := 0
	add := func(kind schedule.Kind, stage int) {
		lanes = append(lanes, plantest.Lane{Kind: kind, Stage: stage, Offset: offset})
		offset += lag()
	}
	for s := range stages {
		add(schedule.F, s)
	}
	for s := stages - 1; s >= 0; s-- {
		if rapid.Bool().Draw(t, "split") {
			add(schedule.I, s)
			lanes = append(lanes, plantest.Lane{Kind: schedule.W, Stage: s, Offset: offset + lag()})
		} else {
			add(schedule.B, s)
		}
	}
	down, scattered := rapid.Bool().Draw(t, "down"), rapid.IntRange(0, 3).Draw(t, "scattered") == 0
	p.Programs = make([][]schedule.Segment, ranks)
	for rank := range ranks {
		own := slices.DeleteFunc(slices.Clone(lanes), func(l plantest.Lane) bool { return p.Placement.Rank[l.Stage] != rank })
		p.Programs[rank] = plantest.Interleave(own, groups, group, down, func(lane, i int) int {
			if scattered && lane%2 == 1 {
				return group - 1 - i
			}
			return i
		})
	}
	return p
}

// sendInLanes adds a send immediately after and a receive immediately before each computation whose
// result crosses ranks. The waits follow the sends or are all at the end. If lanes cross, messages
// may be received out of order, or the ranks may deadlock.
func sendInLanes(p *schedule.Plan, atEnd bool) {
	for rank, program := range p.Programs {
		var waits []schedule.Segment
		for i, segment := range program {
			var body, waited []schedule.Action
			for _, a := range segment.Body {
				receive, send, wait, from, to := schedule.RecvF, schedule.SendF, schedule.WaitF, a.Stage()-1, a.Stage()+1
				if a.Kind() != schedule.F {
					receive, send, wait, from, to = schedule.RecvB, schedule.SendB, schedule.WaitB, a.Stage()+1, a.Stage()-1
				}
				of := func(kind schedule.Kind) schedule.Action { return schedule.NewAction(kind, a.Stage(), a.Microbatch()) }
				if a.Kind() != schedule.W && crosses(p, from, a.Stage()) {
					body = append(body, of(receive))
				}
				body = append(body, a)
				if a.Kind() != schedule.W && crosses(p, a.Stage(), to) {
					body = append(body, of(send))
					waited = append(waited, of(wait))
				}
			}
			if !atEnd {
				body = append(body, waited...)
			} else if len(waited) > 0 {
				waits = append(waits, schedule.Segment{Body: waited, Repeat: segment.Repeat, Stride: segment.Stride})
			}
			p.Programs[rank][i].Body = body
		}
		p.Programs[rank] = append(p.Programs[rank], waits...)
	}
}

// TestSimulateMillion requires for every schedule that the actions and allocations of a simulation
// hardly grow with the number of microbatches.
func TestSimulateMillion(t *testing.T) {
	costs := &simulate.Costs{Stages: []simulate.StageCosts{{F: 18522, I: 18086, W: 9337, Output: 1 << 20, Gradient: 1 << 20}}, Latency: 601, PerMiB: 17}
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			placement, err := s.Place(4, 4*s.PerRank)
			require.NoError(t, err)
			var allocated, ran [2]uint64
			for i, microbatches := range []int{20_000, 1_000_000} {
				p, err := s.Rule(schedule.Params{Placement: placement, Microbatches: microbatches})
				require.NoError(t, err)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err = simulate.Run(p, costs, schedule.Unlimited)
				runtime.ReadMemStats(&after)
				require.NoError(t, err)
				work := workOf(t, p, costs, schedule.Unlimited)
				allocated[i], ran[i] = after.TotalAlloc-before.TotalAlloc, uint64(work)
			}
			require.LessOrEqual(t, ran[1], 2*ran[0])
			require.Less(t, allocated[1], allocated[0]+1<<16)
		})
	}
}

package schedule_test

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/schedule"
)

// requireLeaps demands that a plan comes to the same with leaps and without, and adds
// up the actions that were run.
func requireLeaps(t *rapid.T, p *schedule.Plan, capacity int, full, leapt *int64) {
	costs := drawCosts(t, p)
	want, work, err := schedule.SimulateInFull(p, costs, capacity)
	got, fault := schedule.SimulateLeaping(p, costs, capacity)
	if err != nil {
		require.Equal(t, errors.Is(err, schedule.ErrDeadlock), errors.Is(fault, schedule.ErrDeadlock))
		require.Error(t, fault)
		return
	}
	require.NoError(t, fault)
	require.Equal(t, want, got)
	few, err := schedule.SimulatedWork(p, costs, capacity)
	require.NoError(t, err)
	*full, *leapt = *full+work, *leapt+few
}

// TestLeaps runs the schedules of the catalog, with transfers and without.
func TestLeaps(t *testing.T) {
	var full, leapt int64
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(schedule.Schedules()).Draw(t, "schedule")
		ranks := rapid.IntRange(1, 6).Draw(t, "ranks")
		placement, err := s.Place(ranks, ranks*s.PerRank)
		if err != nil {
			t.Skip(err)
		}
		p, err := s.Rule(schedule.Params{Placement: placement, Microbatches: rapid.IntRange(1, 1000).Draw(t, "microbatches")})
		if err != nil {
			t.Skip(err)
		}
		capacity := rapid.SampledFrom([]int{schedule.Unlimited, 0, 1, 2, 3, 40, 500}).Draw(t, "capacity")
		if ranks > 1 && rapid.Bool().Draw(t, "transfers") {
			if p, err = schedule.Comms(p, capacity); err != nil {
				t.Skip(err)
			}
		}
		requireLeaps(t, p, capacity, &full, &leapt)
	})
	require.Less(t, leapt, full/2)
}

// TestLeapsOfLanes runs plans in which all kinds of all stages go side by side.
func TestLeapsOfLanes(t *testing.T) {
	var full, leapt int64
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
		requireLeaps(t, p, capacity, &full, &leapt)
	})
	require.Less(t, leapt, full/2)
}

// TestLeapsOverGrowingWaits has a rank that waits for two others in turn, of which one
// is a little slower. So each wait for it is longer than the one before, by 1, and a
// rank that only passes its messages on makes that time on the wire.
func TestLeapsOverGrowingWaits(t *testing.T) {
	const n = 900
	p := &schedule.Plan{Name: "growing", Mode: schedule.ForwardOnly, Microbatches: 2 * n,
		Placement: schedule.Placement{Ranks: 5, Rank: []int{3, 0, 2, 4, 1, 2}, Copies: 2}}
	for _, body := range [][]schedule.Action{
		{schedule.Act(schedule.F, 1, 0)}, {schedule.Act(schedule.F, 4, n)}, {schedule.Act(schedule.F, 2, 0), schedule.Act(schedule.F, 5, n)},
		{schedule.Act(schedule.F, 0, 0)}, {schedule.Act(schedule.F, 3, n)},
	} {
		p.Programs = append(p.Programs, []schedule.Segment{{Body: body, Repeat: n, Stride: 1}})
	}
	costs := &schedule.Costs{
		Stages: []schedule.StageCosts{{F: 1000}, {}, {F: 1}, {F: 1001}, {}, {F: 1}},
		Links:  []schedule.LinkCosts{{From: 3, To: 0, Latency: 5000}, {From: 1, To: 2, Latency: 5000}},
	}
	report, err := schedule.SimulateLeaping(p, costs, schedule.Unlimited)
	require.NoError(t, err)
	require.EqualValues(t, n*(n-1)/2, report.Ranks[2].Communication)
	require.EqualValues(t, 1001*n+5001, report.Ranks[2].Last)
	work, err := schedule.SimulatedWork(p, costs, schedule.Unlimited)
	require.NoError(t, err)
	require.Less(t, work, int64(n))
}

// drawLanes draws a plan on several ranks in which each kind of each stage follows
// the one that it needs at some distance: the same microbatch of the repeat, or some
// repeats behind it. Where microbatches descend, or groups are taken in another order
// by different lanes, not every one of them works.
func drawLanes(t *rapid.T) *schedule.Plan {
	ranks, stages := rapid.IntRange(1, 4).Draw(t, "ranks"), rapid.IntRange(1, 5).Draw(t, "stages")
	group, groups := rapid.IntRange(1, 3).Draw(t, "group"), rapid.IntRange(1, 300).Draw(t, "groups")
	p := &schedule.Plan{Name: "lanes", Microbatches: group * groups, Placement: schedule.Placement{Ranks: ranks}}
	for range stages {
		p.Placement.Rank = append(p.Placement.Rank, rapid.IntRange(0, ranks-1).Draw(t, "rank"))
	}
	var lanes []lane
	lag := func() int {
		return rapid.SampledFrom([]int{0, 0, 1, 2, 40, groups}).Draw(t, "lag")
	}
	offset := 0
	add := func(kind schedule.Kind, stage int) {
		lanes = append(lanes, lane{kind, stage, offset})
		offset += lag()
	}
	for s := range stages {
		add(schedule.F, s)
	}
	for s := stages - 1; s >= 0; s-- {
		if rapid.Bool().Draw(t, "split") {
			add(schedule.I, s)
			lanes = append(lanes, lane{schedule.W, s, offset + lag()})
		} else {
			add(schedule.B, s)
		}
	}
	down, scattered := rapid.Bool().Draw(t, "down"), rapid.IntRange(0, 3).Draw(t, "scattered") == 0
	p.Programs = make([][]schedule.Segment, ranks)
	for rank := range ranks {
		var own []lane
		var cuts []int
		for _, l := range lanes {
			if p.Placement.Rank[l.stage] == rank {
				own = append(own, l)
				cuts = append(cuts, l.offset, l.offset+groups)
			}
		}
		slices.Sort(cuts)
		cuts = slices.Compact(cuts)
		for i := range max(0, len(cuts)-1) {
			segment := schedule.Segment{Repeat: cuts[i+1] - cuts[i], Stride: group}
			if down {
				segment.Stride = -group
			}
			for n, l := range own {
				g := cuts[i] - l.offset
				if g < 0 || g >= groups {
					continue
				}
				if down {
					g = groups - 1 - g
				}
				for k := range group {
					if scattered && n%2 == 1 {
						k = group - 1 - k
					}
					segment.Body = append(segment.Body, schedule.Act(l.kind, l.stage, g*group+k))
				}
			}
			if len(segment.Body) > 0 {
				p.Programs[rank] = append(p.Programs[rank], segment)
			}
		}
	}
	return p
}

// sendInLanes puts a send right behind and a receive right before each computation of
// a plan, where something crosses ranks, and the waits behind the sends or all of them
// at the end. Where lanes cross, messages are not received in order, or nobody can go
// on.
func sendInLanes(p *schedule.Plan, atEnd bool) {
	crosses := func(from, to int) bool {
		return from >= 0 && to >= 0 && from < p.Placement.Stages() && to < p.Placement.Stages() && p.Placement.Rank[from] != p.Placement.Rank[to]
	}
	for rank, program := range p.Programs {
		var waits []schedule.Segment
		for i, segment := range program {
			var body, waited []schedule.Action
			for _, a := range segment.Body {
				receive, send, wait, from, to := schedule.RecvF, schedule.SendF, schedule.WaitF, a.Stage()-1, a.Stage()+1
				if a.Kind() != schedule.F {
					receive, send, wait, from, to = schedule.RecvB, schedule.SendB, schedule.WaitB, a.Stage()+1, a.Stage()-1
				}
				of := func(kind schedule.Kind) schedule.Action { return schedule.Act(kind, a.Stage(), a.Microbatch()) }
				if a.Kind() != schedule.W && crosses(from, a.Stage()) {
					body = append(body, of(receive))
				}
				body = append(body, a)
				if a.Kind() != schedule.W && crosses(a.Stage(), to) {
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

// TestSimulateMillion demands of every schedule that what a simulation runs and
// allocates does not grow with the microbatches.
func TestSimulateMillion(t *testing.T) {
	costs := &schedule.Costs{Stages: []schedule.StageCosts{{F: 18522, I: 18086, W: 9337, Output: 1 << 20, Gradient: 1 << 20}}, Latency: 601, PerMiB: 17}
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
				_, err = schedule.Simulate(p, costs, schedule.Unlimited)
				runtime.ReadMemStats(&after)
				require.NoError(t, err)
				work, err := schedule.SimulatedWork(p, costs, schedule.Unlimited)
				require.NoError(t, err)
				allocated[i], ran[i] = after.TotalAlloc-before.TotalAlloc, uint64(work)
			}
			require.LessOrEqual(t, ran[1], 2*ran[0])
			require.Less(t, allocated[1], allocated[0]+1<<16)
		})
	}
}

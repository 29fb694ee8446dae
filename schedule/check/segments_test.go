package check_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// drawSchedule draws a plan of a rule on several ranks, sometimes lowered by the passes.
func drawSchedule(t *rapid.T) *schedule.Plan {
	all := schedule.Schedules()
	s := all[rapid.IntRange(0, len(all)-1).Draw(t, "schedule")]
	ranks := rapid.IntRange(1, 6).Draw(t, "ranks")
	stages := ranks * s.PerRank
	if s.Name == "dualpipe" {
		ranks = 2 * rapid.IntRange(1, 3).Draw(t, "pairs")
		stages = ranks
	}
	placement, err := s.Place(ranks, stages)
	require.NoError(t, err)
	params := schedule.Params{Placement: placement, Microbatches: rapid.IntRange(1, 90).Draw(t, "microbatches")}
	if s.Name == "seq1f1b" {
		params.Slices = rapid.IntRange(1, 3).Draw(t, "slices")
	}
	if rapid.IntRange(0, 5).Draw(t, "forward-only") == 0 {
		params.Mode = schedule.ForwardOnly
	}
	p, err := s.Rule(params)
	if err != nil {
		t.Skip(err)
	}
	require.NoError(t, check.Plan(p), s.Name)
	if rapid.IntRange(0, 3).Draw(t, "transfers") > 0 && ranks > 1 {
		p, err = lower.Transfers(p, rapid.IntRange(-1, 2).Draw(t, "capacity"))
		require.NoError(t, err, s.Name)
	}
	if rapid.IntRange(0, 3).Draw(t, "reduce") == 0 {
		p, err = lower.Reduce(p, p.Microbatches%4)
		require.NoError(t, err, s.Name)
	}
	if rapid.IntRange(0, 3).Draw(t, "shard") == 0 {
		p, err = lower.Shard(p, 2)
		require.NoError(t, err, s.Name)
	}
	return p
}

// drawSegments draws a plan on several ranks whose segments run whole lanes in parallel. Every rank
// has its own lags and strides, so many of these plans are invalid.
func drawSegments(t *rapid.T) *schedule.Plan {
	ranks := rapid.IntRange(2, 3).Draw(t, "ranks")
	p := &schedule.Plan{Name: "lanes", Microbatches: 12 * rapid.IntRange(1, 5).Draw(t, "dozens"), Placement: schedule.Placement{Ranks: ranks}}
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	for range 1 + rng.IntN(4) {
		p.Placement.Rank = append(p.Placement.Rank, rng.IntN(ranks))
	}
	stages := len(p.Placement.Rank)
	down := rng.IntN(4) == 0
	for rank := range ranks {
		var lanes []plantest.Lane
		offset := 0
		for s := range stages {
			offset += rng.IntN(2) * rng.IntN(3)
			if p.Placement.Rank[s] == rank {
				lanes = append(lanes, plantest.Lane{Kind: schedule.F, Stage: s, Offset: offset})
			}
		}
		for s := stages - 1; s >= 0; s-- {
			offset += rng.IntN(2) * rng.IntN(3)
			if p.Placement.Rank[s] == rank {
				lanes = append(lanes, plantest.Lane{Kind: schedule.B, Stage: s, Offset: offset})
			}
		}
		stride := []int{1, 1, 2, 3, 4}[rng.IntN(5)]
		p.Programs = append(p.Programs, sideBySide(lanes, p.Microbatches, stride, down))
	}
	return p
}

// sideBySide returns the program that runs all microbatches through the lanes, stride microbatches
// per repeat, with each lane delayed by its offset in repeats.
func sideBySide(lanes []plantest.Lane, microbatches, stride int, down bool) []schedule.Segment {
	repeats := microbatches / stride
	var cuts []int
	for _, l := range lanes {
		cuts = append(cuts, l.Offset, l.Offset+repeats)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var program []schedule.Segment
	for i := range max(len(cuts), 1) - 1 {
		s := schedule.Segment{Repeat: cuts[i+1] - cuts[i], Stride: stride}
		for _, l := range lanes {
			from := cuts[i] - l.Offset
			if from < 0 || from >= repeats {
				continue
			}
			for k := range stride {
				mb := from*stride + k
				if down {
					mb = microbatches - 1 - mb
				}
				s.Body = append(s.Body, schedule.NewAction(l.Kind, l.Stage, mb))
			}
		}
		if down {
			s.Stride = -stride
		}
		if len(s.Body) > 0 {
			program = append(program, s)
		}
	}
	return program
}

// paces returns a plan in which each rank alternates forwards and backwards, a varying number of
// forwards ahead. If a rank is further ahead than the previous rank, they deadlock.
func paces(rng *rand.Rand) *schedule.Plan {
	ranks, m := 2+rng.IntN(3), 1+rng.IntN(150)
	p := &schedule.Plan{Name: "paces", Microbatches: m, Placement: schedule.Looped(ranks, ranks), Programs: make([][]schedule.Segment, ranks)}
	transfers := rng.IntN(2) == 0
	ahead := make([]int, m) // by microbatch: the number of further forwards before its backward
	for rank := ranks - 1; rank >= 0; rank-- {
		for range rng.IntN(3) {
			from, more := rng.IntN(m), rng.IntN(4)
			if rng.IntN(4) == 0 {
				more = -1
			}
			for i := from; i < m; i++ {
				ahead[i] = max(0, ahead[i]+more)
			}
		}
		var list []schedule.Action
		do := func(mb int, kinds ...schedule.Kind) {
			for _, k := range kinds {
				if sends := k != schedule.F && k != schedule.B; !sends || transfers {
					list = append(list, schedule.NewAction(k, rank, mb))
				}
			}
		}
		next := 0
		for i := range m {
			for ; next < min(m, i+1+ahead[i]); next++ {
				if rank > 0 {
					do(next, schedule.RecvF)
				}
				if do(next, schedule.F); rank < ranks-1 {
					do(next, schedule.SendF)
				}
			}
			if rank < ranks-1 {
				do(i, schedule.RecvB)
			}
			if do(i, schedule.B); rank > 0 {
				do(i, schedule.SendB)
			}
		}
		var b schedule.Builder
		for _, a := range list {
			b.Append(a)
		}
		p.Programs[rank] = b.Program()
	}
	return p
}

// TestCheckOfSegmentsOnRanks compares the faults in segments on several ranks, whose repeats the
// check skips, with the faults in the same actions written out.
func TestCheckOfSegmentsOnRanks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := []func(*rapid.T) *schedule.Plan{drawSchedule, drawSegments}
		p := draw[rapid.IntRange(0, len(draw)-1).Draw(t, "draw")](t)
		for range rapid.IntRange(0, 2).Draw(t, "spoils") {
			rank := rapid.IntRange(0, len(p.Programs)-1).Draw(t, "rank")
			if len(p.Programs[rank]) > 0 {
				q := *p
				q.Programs = slices.Clone(p.Programs)
				q.Programs[rank] = slices.Clone(p.Programs[rank])
				spoil(t, &q, rank)
				p = &q
			}
		}
		if rapid.Bool().Draw(t, "nested") {
			p = plantest.Nested(p, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		}
		compareWithList(t, p, rapid.IntRange(-1, 2).Draw(t, "capacity"))
	})
}

// TestCheckOfLoneActions proves a plan in which every action of a loop is an inner segment of its
// own, so that only the index of that segment shows the position of a rank.
func TestCheckOfLoneActions(t *testing.T) {
	p, err := schedule.BreadthFirst(schedule.Params{Placement: schedule.Looped(4, 12), Microbatches: 16})
	require.NoError(t, err)
	p, err = lower.Transfers(p, schedule.Unlimited)
	require.NoError(t, err)
	for _, program := range p.Programs {
		for i, s := range program {
			program[i].Body = nil
			for _, a := range s.Body {
				program[i].Inner = append(program[i].Inner, schedule.Segment{Body: []schedule.Action{a}, Repeat: 1})
			}
		}
	}
	require.NoError(t, check.Plan(p))
}

// TestCheckOfPaces compares the faults in plans that deadlock after a while, including the ranks
// and actions of the waiting cycle, between segments and lists.
func TestCheckOfPaces(t *testing.T) {
	rng := rand.New(rand.NewPCG(plantest.Seed(), 4))
	blocked := 0
	for range 1_000 {
		p := paces(rng)
		if rng.IntN(2) == 0 {
			p = plantest.Nested(p, rng)
		}
		compareWithList(t, p, rng.IntN(4)-1)
		if check.Plan(p) != nil {
			blocked++
		}
	}
	require.Greater(t, blocked, 100)
	require.Less(t, blocked, 900)
}

// compareWithList compares the faults of a plan in segments with the faults of the same plan
// written out.
func compareWithList(t require.TestingT, p *schedule.Plan, capacity int) {
	got, want := check.Links(p, capacity), check.Links(plantest.Expand(p), capacity)
	if slices.Contains(plantest.CodesOf(got), check.BadJoin) {
		return // a join at the end of a body has no partner, but has one if repeats are written out
	}
	require.Equal(t, want == nil, got == nil, "segments: %v\nlists: %v", got, want)
	invalid, ok := errors.AsType[*check.Error](want)
	if !ok || len(invalid.More) > 0 {
		return
	}
	require.Equal(t, plantest.CodesOf(want), plantest.CodesOf(got), "segments: %v\nlists: %v", got, want)
	if last := invalid.Faults[len(invalid.Faults)-1]; last.Code == check.Deadlock {
		again, _ := errors.AsType[*check.Error](got)
		require.Equal(t, last, again.Faults[len(again.Faults)-1])
	}
}

// TestCheckOfEverySchedule proves every schedule, as generated and with transfers and lifetimes, for the
// link capacity of the lowering: as segments and, with few microbatches, written out.
func TestCheckOfEverySchedule(t *testing.T) {
	most, numbers := 4, []int{1, 5, 17, 1_000}
	if *testkit.Long {
		most, numbers = 8, []int{1, 2, 5, 16, 17, 64, 1_000}
	}
	for _, s := range schedule.Schedules() {
		t.Run(s.Name, func(t *testing.T) {
			for ranks := 1; ranks <= most; ranks++ {
				placement, err := s.Place(ranks, ranks*s.PerRank)
				require.NoError(t, err)
				for _, microbatches := range numbers {
					for _, mode := range []schedule.Mode{schedule.Training, schedule.ForwardOnly} {
						p, err := s.Rule(schedule.Params{Placement: placement, Microbatches: microbatches, Mode: mode})
						if err != nil {
							require.ErrorIs(t, err, schedule.ErrParams)
							continue
						}
						proveAll(t, p)
					}
				}
			}
		})
	}
}

// proveAll proves a plan without transfers and, on several ranks, the lowered plans.
func proveAll(t *testing.T, p *schedule.Plan) {
	prove := func(p *schedule.Plan, capacity int) {
		where := fmt.Sprintf("P=%d M=%d %v, capacity %d", p.Placement.Ranks, p.Microbatches, p.Mode, capacity)
		require.NoError(t, check.Links(p, capacity), where)
		if p.Microbatches < 20 {
			require.NoError(t, check.Links(plantest.Expand(p), capacity), where+", a list")
		}
	}
	prove(p, schedule.Unlimited)
	facts := make([]schedule.StageInfo, p.Placement.Stages())
	for stage := range facts {
		facts[stage].Split = true
		if p.Placement.First(stage) {
			facts[stage].Reads[schedule.F] = 1
		}
		if p.Placement.Last(stage) {
			facts[stage].Reads[schedule.F], facts[stage].Reads[schedule.B], facts[stage].Reads[schedule.I] = 6, 6, 6
		}
	}
	for capacity := schedule.Unlimited; capacity <= 1 && p.Placement.Ranks > 1; capacity++ {
		lowered, err := lower.Transfers(p, capacity)
		require.NoError(t, err)
		prove(lowered, capacity)
		marked, err := lower.Lifetimes(lowered, facts, 3)
		require.NoError(t, err)
		prove(marked, capacity)
	}
}

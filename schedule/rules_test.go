package schedule_test

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/check"
	"github.com/weir-ml/weir/schedule/lower"
)

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, text string) {
	path := filepath.Join("testdata", name)
	testkit.Golden(t, path, text)
}

// requireRule makes a plan, and requires that it equals the plan of naive, which returns the actions of a
// rank for training with all stages; that it has all required actions; and that it can be run.
func requireRule(t require.TestingT, rule schedule.Rule, p schedule.Params, naive func(rank int) []schedule.Action) *schedule.Plan {
	plan := plantest.Made(t, rule, p)
	for rank := range p.Placement.Ranks {
		want := left(p, naive(rank))
		require.Equal(t, want, slices.AppendSeq([]schedule.Action{}, plan.All(rank)), "rank %d", rank)
	}
	plantest.RequireWhole(t, plan)
	plantest.Clocks(t, plan, plantest.Ticks)
	return plan
}

// left returns the actions for training with all stages, without the actions that the mode and the
// frozen stages rule out, and without joins with those.
func left(p schedule.Params, list []schedule.Action) []schedule.Action {
	trained := slices.Index(p.Frozen, false) // the same in every copy of the model
	kind := func(a schedule.Action) schedule.Kind {
		frozen := len(p.Frozen) > 0 && p.Frozen[a.Stage()]
		switch {
		case a.Kind() == schedule.F || !frozen && p.Mode == schedule.Training:
			return a.Kind()
		case p.Mode == schedule.ForwardOnly, a.Stage()%p.Placement.Depth() < trained, a.Kind() == schedule.W:
			return schedule.None
		}
		return schedule.I
	}
	some := []schedule.Action{}
	for i, a := range list {
		if kind := kind(a); kind != schedule.None {
			some = append(some, schedule.NewAction(kind, a.Stage(), a.Microbatch()).WithJoin(a.Joined()))
		}
		if a.Joined() && kind(list[i+1]) == schedule.None && len(some) > 0 {
			some[len(some)-1] = some[len(some)-1].WithJoin(false)
		}
	}
	return some
}

// drawMode draws a mode and frozen stages for parameters that have a placement.
func drawMode(t *rapid.T, p schedule.Params) schedule.Params {
	p.Mode = schedule.Mode(rapid.IntRange(0, 1).Draw(t, "mode"))
	if stages := p.Placement.Stages(); rapid.IntRange(0, 2).Draw(t, "some frozen") == 0 {
		p.Frozen = rapid.SliceOfN(rapid.Bool(), stages, stages).Draw(t, "frozen")
		p.Frozen[rapid.IntRange(0, stages-1).Draw(t, "free")] = false
	}
	return p
}

// drawLooped draws parameters with up to 8 ranks of up to 4 stages each.
func drawLooped(t *rapid.T) schedule.Params {
	ranks, depth := rapid.IntRange(1, 8).Draw(t, "ranks"), rapid.IntRange(1, 4).Draw(t, "depth")
	return drawMode(t, schedule.Params{
		Placement:    schedule.Looped(ranks, ranks*depth),
		Microbatches: rapid.IntRange(1, 40).Draw(t, "microbatches"),
	})
}

// drawAnywhere draws parameters with a random placement.
func drawAnywhere(t *rapid.T) schedule.Params {
	ranks := rapid.IntRange(1, 8).Draw(t, "ranks")
	return drawMode(t, schedule.Params{
		Placement:    schedule.Placement{Ranks: ranks, Rank: rapid.SliceOfN(rapid.IntRange(0, ranks-1), 1, 16).Draw(t, "placement")},
		Microbatches: rapid.IntRange(1, 40).Draw(t, "microbatches"),
	})
}

// drawChain draws parameters with one to three stages in a row on each rank.
func drawChain(t *rapid.T) schedule.Params {
	p := schedule.Params{Microbatches: rapid.IntRange(1, 40).Draw(t, "microbatches")}
	for rank, depth := range rapid.SliceOfN(rapid.IntRange(1, 3), 1, 8).Draw(t, "depths") {
		p.Placement.Ranks = rank + 1
		p.Placement.Rank = append(p.Placement.Rank, slices.Repeat([]int{rank}, depth)...)
	}
	return drawMode(t, p)
}

// all returns the actions of a kind on a stage for the microbatches from lo to hi.
func all(kind schedule.Kind, stage, lo, hi int) (list []schedule.Action) {
	for mb := lo; mb < hi; mb++ {
		list = append(list, schedule.NewAction(kind, stage, mb))
	}
	return list
}

// segmented returns the programs in the text form, without empty lines.
func segmented(t require.TestingT, p *schedule.Plan) string {
	_, programs, _ := strings.Cut(plantest.Text(t, p), "\n\n")
	return strings.ReplaceAll(strings.TrimSuffix(programs, "\n"), "\n\n", "\n")
}

func TestGoldenPlans(t *testing.T) {
	for _, test := range []struct {
		name   string
		rule   schedule.Rule
		stages int
		params schedule.Params
	}{
		{"depth-first.txt", schedule.DepthFirst, 4, schedule.Params{Microbatches: 64}},
		{"depth-first-group.txt", schedule.DepthFirst, 2, schedule.Params{Microbatches: 14, Group: 4}},
		{"depth-first-one-group.txt", schedule.DepthFirst, 2, schedule.Params{Microbatches: 4, Group: 9}},
		{"depth-first-frozen.txt", schedule.DepthFirst, 4, schedule.Params{Microbatches: 64, Frozen: []bool{true, true, false, true}}},
		{"depth-first-forward-only.txt", schedule.DepthFirst, 3, schedule.Params{Microbatches: 64, Mode: schedule.ForwardOnly, Group: 2}},
		{"breadth-first.txt", schedule.BreadthFirst, 4, schedule.Params{Microbatches: 1_000_000}},
		{"breadth-first-frozen.txt", schedule.BreadthFirst, 3, schedule.Params{Microbatches: 64, Frozen: []bool{true, false, true}}},
		{"breadth-first-forward-only.txt", schedule.BreadthFirst, 3, schedule.Params{Microbatches: 64, Mode: schedule.ForwardOnly}},
		{"one-stage.txt", schedule.DepthFirst, 1, schedule.Params{Microbatches: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.params.Placement = schedule.Looped(1, test.stages)
			plan := plantest.Made(t, test.rule, test.params)
			facts := plantest.LanguageModel(test.stages)
			for stage := range facts {
				facts[stage].Frozen = test.params.Mode == schedule.Training && len(test.params.Frozen) > 0 && test.params.Frozen[stage]
				facts[stage].Reads[schedule.I] = facts[stage].Reads[schedule.B]
			}
			plan, err := lower.Lifetimes(plan, facts, 3)
			require.NoError(t, err)
			require.NoError(t, check.Plan(plan))
			golden(t, test.name, plantest.Text(t, plan))
		})
	}
}

// TestOneRank compares the rules on one rank with their definitions, written as plain
// loops.
func TestOneRank(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		params := plantest.DrawParams(t)
		stages, microbatches := params.Placement.Stages(), params.Microbatches
		trained := false
		backward := make([]schedule.Kind, stages)
		for s := range stages {
			frozen := params.Frozen != nil && params.Frozen[s]
			trained = trained || !frozen
			switch {
			case !trained || params.Mode == schedule.ForwardOnly:
			case frozen:
				backward[s] = schedule.I
			default:
				backward[s] = schedule.B
			}
		}
		var list []schedule.Action
		group := func(from, to int) {
			for s := range stages {
				for m := from; m < to; m++ {
					list = append(list, schedule.NewAction(schedule.F, s, m))
				}
			}
			for s := stages - 1; s >= 0; s-- {
				for m := from; m < to && backward[s] != schedule.None; m++ {
					list = append(list, schedule.NewAction(backward[s], s, m))
				}
			}
		}

		for from := 0; from < microbatches; from += max(params.Group, 1) {
			group(from, min(from+max(params.Group, 1), microbatches))
		}
		depth := plantest.Made(t, schedule.DepthFirst, params)
		require.Equal(t, list, slices.Collect(depth.All(0)))
		require.Equal(t, int64(len(list)), depth.Actions(0))

		list, params.Group = nil, 0
		group(0, microbatches)
		breadth := plantest.Made(t, schedule.BreadthFirst, params)
		require.Equal(t, list, slices.Collect(breadth.All(0)))
	})
}

func TestStageInfoMustFit(t *testing.T) {
	plan := plantest.Made(t, schedule.DepthFirst, schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: 2})
	for _, test := range []struct {
		facts []schedule.StageInfo
		parts int
		fault string
	}{
		{make([]schedule.StageInfo, 1), 0, "facts for 1 stages, but the plan has 2 stages"},
		{make([]schedule.StageInfo, 2), 65, "an entry has 65 parts"},
		{make([]schedule.StageInfo, 2), -1, "an entry has -1 parts"},
		{plantest.LanguageModel(2), 2, "stage 1 reads a part at F that is not one of the 2 parts of an entry"},
	} {
		_, err := lower.Lifetimes(plan, test.facts, test.parts)
		require.ErrorIs(t, err, schedule.ErrStageInfo)
		require.ErrorContains(t, err, test.fault)
	}
	_, err := lower.Lifetimes(plan, []schedule.StageInfo{{}, {Frozen: true}}, 0)
	plantest.RequireCodes(t, err, check.Malformed)
}

// Lifetimes does not modify the given plan.
func TestLifetimesLeaveThePlanAlone(t *testing.T) {
	plan := plantest.Made(t, schedule.DepthFirst, schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: 9, Group: 4})
	before := plantest.Text(t, plan)
	once, err := lower.Lifetimes(plan, plantest.LanguageModel(2), 3)
	require.NoError(t, err)
	require.Equal(t, before, plantest.Text(t, plan))
	again, err := lower.Lifetimes(once, plantest.LanguageModel(2), 3)
	require.NoError(t, err)
	require.Equal(t, once, again)
}

// inFlight returns, by rank, the maximum number of microbatches in flight, counting each stage separately. A microbatch
// is in flight from the forward to the full backward or the weight gradient.
func inFlight(p *schedule.Plan) []int {
	peaks := make([]int, len(p.Programs))
	for rank := range peaks {
		held := 0
		for a := range p.All(rank) {
			switch {
			case !p.HasBackward(a.Stage()):
			case a.Kind() == schedule.F:
				held++
			case a.Kind() == schedule.B, a.Kind() == schedule.W, a.Kind() == schedule.I && len(p.Frozen) > 0 && p.Frozen[a.Stage()]:
				held--
			}
			peaks[rank] = max(peaks[rank], held)
		}
	}
	return peaks
}

// The size of a plan depends on its rule, not on the number of microbatches: building a plan
// for 64 ranks and a million microbatches takes less than a MiB.
func TestPlansAreSmall(t *testing.T) {
	const ranks = 64
	for _, test := range []struct {
		name              string
		depth             int
		segments, actions int // of all ranks
	}{
		{"gpipe", 1, 2 * ranks, 2 * ranks},
		{"1f1b", 1, 3*ranks - 2, 4*ranks - 2},
		{"1f1b", 2, 3*ranks - 2, 8*ranks - 4},
		{"interleaved", 2, 725, 6_554},
		{"breadth-first", 2, 4 * ranks, 4 * ranks},
		{"depth-first", 1, 3*ranks - 2, 4*ranks - 2},
		{"zb-h1", 1, 316, 568},
		{"zb1p", 2, 830, 7_392},
		{"zb-v", 2, 570, 1_461},
		{"seq1f1b", 1, 3*ranks - 2, 4*ranks - 2},
	} {
		s, placement := plantest.Find(t, test.name, ranks, ranks*test.depth)
		build := func(microbatches int) (plan *schedule.Plan, bytes uint64) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			plan, err := s.Rule(schedule.Params{Placement: placement, Microbatches: microbatches})
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			return plan, after.TotalAlloc - before.TotalAlloc
		}
		size := func(plan *schedule.Plan) (segments, actions int) {
			for _, program := range plan.Programs {
				for _, s := range program {
					segments += max(len(s.Inner), 1)
				}
				for range schedule.StaticActions(program) {
					actions++
				}
			}
			return segments, actions
		}
		plan, bytes := build(1_000_000)
		require.Less(t, bytes, uint64(1<<20), test.name)
		segments, actions := size(plan)
		require.Equal(t, test.segments, segments, test.name)
		require.Equal(t, test.actions, actions, test.name)
	}
}

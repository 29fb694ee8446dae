package schedule_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/schedule"
)

var (
	update = flag.Bool("update", false, "rewrite the golden files")
	long   = flag.Bool("long", false, "run what takes longer as well")
)

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, text string) {
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

func text(t require.TestingT, p *schedule.Plan) string {
	var b strings.Builder
	require.NoError(t, p.WriteText(&b))
	return b.String()
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
			plan, err := test.rule(test.params)
			require.NoError(t, err)
			facts := languageModel(test.stages)
			for stage := range facts {
				facts[stage].Frozen = test.params.Mode == schedule.Training && len(test.params.Frozen) > 0 && test.params.Frozen[stage]
				facts[stage].Reads[schedule.I] = facts[stage].Reads[schedule.B]
			}
			plan, err = schedule.Lifetimes(plan, facts, 3)
			require.NoError(t, err)
			require.NoError(t, schedule.Check(plan))
			golden(t, test.name, text(t, plan))
		})
	}
}

// TestRules compares the rules with what they say, written as plain loops.
func TestRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		params := drawParams(t)
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
					list = append(list, schedule.Act(schedule.F, s, m))
				}
			}
			for s := stages - 1; s >= 0; s-- {
				for m := from; m < to && backward[s] != schedule.None; m++ {
					list = append(list, schedule.Act(backward[s], s, m))
				}
			}
		}

		for from := 0; from < microbatches; from += max(params.Group, 1) {
			group(from, min(from+max(params.Group, 1), microbatches))
		}
		depth, err := schedule.DepthFirst(params)
		require.NoError(t, err)
		require.Equal(t, list, slices.Collect(depth.All(0)))
		require.Equal(t, int64(len(list)), depth.Actions(0))

		list, params.Group = nil, 0
		group(0, microbatches)
		breadth, err := schedule.BreadthFirst(params)
		require.NoError(t, err)
		require.Equal(t, list, slices.Collect(breadth.All(0)))
	})
}

func TestParamsReportEveryFault(t *testing.T) {
	err := schedule.Params{
		Placement: schedule.Placement{Ranks: 0}, Microbatches: 0, Group: -1, Mode: 7, Frozen: []bool{true},
	}.Validate()
	require.ErrorIs(t, err, schedule.ErrParams)
	for _, fault := range []string{"0 stages", "0 ranks", "0 microbatches", "group -1", "mode 7", "frozen has 1 entries for 0 stages"} {
		require.ErrorContains(t, err, fault)
	}
	for _, test := range []struct {
		params schedule.Params
		fault  string
	}{
		{schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: schedule.MaxMicrobatches + 1}, "268435457 microbatches"},
		{schedule.Params{Placement: schedule.Looped(1, schedule.MaxStages+1), Microbatches: 1}, "16385 stages"},
		{schedule.Params{Placement: schedule.Placement{Ranks: 1, Rank: []int{0, 1}}, Microbatches: 1}, "stage 1 is on rank 1"},
		{schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: 1, Frozen: []bool{true, true}}, "every stage is frozen"},
		{schedule.Params{Placement: schedule.Looped(2, 2), Microbatches: 1}, "has no rule for 2 ranks yet"},
	} {
		for _, rule := range []schedule.Rule{schedule.DepthFirst, schedule.BreadthFirst} {
			_, err := rule(test.params)
			require.ErrorIs(t, err, schedule.ErrParams)
			require.ErrorContains(t, err, test.fault)
		}
	}
	_, err = schedule.BreadthFirst(schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: 8, Group: 2})
	require.ErrorContains(t, err, "breadth-first has no groups")
	_, err = schedule.DepthFirst(schedule.Params{Placement: schedule.Looped(1, schedule.MaxStages), Microbatches: schedule.MaxMicrobatches, Group: 1 << 20})
	require.ErrorContains(t, err, "use a smaller group")
}

func TestFactsMustFit(t *testing.T) {
	plan, err := schedule.DepthFirst(schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: 2})
	require.NoError(t, err)
	for _, test := range []struct {
		facts []schedule.Facts
		parts int
		fault string
	}{
		{make([]schedule.Facts, 1), 0, "facts of 1 stages for a plan of 2"},
		{make([]schedule.Facts, 2), 65, "an entry of 65 parts"},
		{make([]schedule.Facts, 2), -1, "an entry of -1 parts"},
		{languageModel(2), 2, "stage 1 reads a part at F that an entry of 2 parts does not have"},
	} {
		_, err := schedule.Lifetimes(plan, test.facts, test.parts)
		require.ErrorIs(t, err, schedule.ErrFacts)
		require.ErrorContains(t, err, test.fault)
	}
	_, err = schedule.Lifetimes(plan, []schedule.Facts{{}, {Frozen: true}}, 0)
	requireCodes(t, err, schedule.Malformed)
}

// The pass reads a plan and makes another one.
func TestLifetimesLeaveThePlanAlone(t *testing.T) {
	plan, err := schedule.DepthFirst(schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: 9, Group: 4})
	require.NoError(t, err)
	before := text(t, plan)
	once, err := schedule.Lifetimes(plan, languageModel(2), 3)
	require.NoError(t, err)
	require.Equal(t, before, text(t, plan))
	again, err := schedule.Lifetimes(once, languageModel(2), 3)
	require.NoError(t, err)
	require.Equal(t, once, again)
}

package schedule_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

func TestParamsReportEveryFault(t *testing.T) {
	err := schedule.Params{
		Placement: schedule.Placement{Ranks: 0, Copies: -1}, Microbatches: 0, Group: -1, Cap: -2, Slices: -3, Mode: 7, Frozen: []bool{true},
	}.Validate()
	require.ErrorIs(t, err, schedule.ErrParams)
	for _, fault := range []string{
		"0 stages", "0 ranks", "0 microbatches", "group -1", "cap -2", "-3 slices", "-1 copies", "mode 7", "frozen has 1 entries for 0 stages",
	} {
		require.ErrorContains(t, err, fault)
	}
}

// Every rule refuses parameters for which there is no plan.
func TestRulesValidate(t *testing.T) {
	twice := func(frozen ...bool) schedule.Params {
		return schedule.Params{Placement: schedule.Bidirectional(2), Microbatches: 4, Frozen: frozen}
	}
	for _, test := range []struct {
		params schedule.Params
		fault  string
	}{
		{schedule.Params{}, "0 stages"},
		{schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: schedule.MaxMicrobatches + 1}, "268435457 microbatches"},
		{schedule.Params{Placement: schedule.Looped(1, schedule.MaxStages+1), Microbatches: 1}, "16385 stages"},
		{schedule.Params{Placement: schedule.Looped(schedule.MaxStages+1, 1), Microbatches: 1}, "16385 ranks"},
		{schedule.Params{Placement: schedule.Looped(1, 1), Microbatches: 1, Slices: math.MaxInt}, fmt.Sprint(math.MaxInt, " slices")},
		{schedule.Params{Placement: schedule.Placement{Ranks: 1, Rank: []int{0, 1}}, Microbatches: 1}, "stage 1 is on rank 1"},
		{schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: 1, Frozen: []bool{true, true}}, "every stage is frozen"},
		{schedule.Params{Placement: schedule.Placement{Ranks: 1, Rank: make([]int, 3), Copies: 2}, Microbatches: 1}, "2 copies of a model in 3 stages"},
		{twice(false, true, false, false), "stage 3 is a copy of stage 1, and only one of them is frozen"},
	} {
		for _, s := range schedule.Schedules() {
			_, err := s.Rule(test.params)
			require.ErrorIs(t, err, schedule.ErrParams, s.Name)
			require.ErrorContains(t, err, test.fault, s.Name)
		}
	}
	require.NoError(t, twice(true, false, true, false).Validate())
	_, err := schedule.BreadthFirst(schedule.Params{Placement: schedule.Looped(1, 2), Microbatches: 8, Group: 2})
	require.ErrorContains(t, err, "breadth-first has no groups: make Group 0, not 2")
}

// Every rule rejects those of Group, Cap and Slices that it does not support.
func TestRulesRefuseWhatTheyDoNotUse(t *testing.T) {
	uses := map[string]string{
		"interleaved": "group", "zb1p": "group", "grouped-interleave": "group", "depth-first": "cap", "zb-h2": "cap", "seq1f1b": "slices",
	}
	for _, s := range schedule.Schedules() {
		for option, set := range map[string]struct {
			set  func(*schedule.Params)
			text string
		}{
			"group":  {func(p *schedule.Params) { p.Group = 2 }, " has no groups: make Group 0, not 2"},
			"cap":    {func(p *schedule.Params) { p.Cap = 2 }, " has a bound of its own in flight: make Cap 0, not 2"},
			"slices": {func(p *schedule.Params) { p.Slices = 2 }, " does not slice sequences: make Slices 0, not 2, or use seq1f1b"},
		} {
			placement, err := s.Place(2, 4)
			if err != nil {
				placement, err = s.Place(2, 2)
			}
			require.NoError(t, err, s.Name)
			p := schedule.Params{Placement: placement, Microbatches: 4}
			set.set(&p)
			_, err = s.Rule(p)
			if uses[s.Name] == option {
				require.NoError(t, err, s.Name)
				continue
			}
			require.ErrorIs(t, err, schedule.ErrParams, "%s %s", s.Name, option)
			require.ErrorContains(t, err, s.Name)
			require.ErrorContains(t, err, set.text)
		}
		if s.Name != "dualpipe" {
			_, err := s.Rule(schedule.Params{Placement: schedule.Bidirectional(2), Microbatches: 4})
			require.ErrorIs(t, err, schedule.ErrParams, s.Name)
			require.ErrorContains(t, err, "runs one copy of the model, and the placement has 2: use dualpipe for two")
		}
	}
}

package schedule_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/schedule"
)

// checkLifetimes compares the pass with the oracle and proves the result. It
// returns nil where the facts cannot be put into a plan.
func checkLifetimes(t require.TestingT, p *schedule.Plan, facts []schedule.Facts) *schedule.Plan {
	want := newOracle(p, facts)
	got, err := schedule.Lifetimes(p, facts, parts)
	if want.uneven || want.unread {
		require.ErrorIs(t, err, schedule.ErrFacts)
		return nil
	}
	require.NoError(t, err)
	require.Equal(t, want.windows, got.Windows)
	require.Equal(t, want.entries, got.Entries)
	for rank := range p.Programs {
		bare, marked := slices.Collect(p.All(rank)), slices.Collect(got.All(rank))
		require.Len(t, marked, len(bare))
		for i, a := range marked {
			require.Equal(t, bare[i].WithDrop(want.drops[rank][i]), a, "rank %d, action %d: %v~%v", rank, i, a, a.Drop())
		}
	}
	require.NoError(t, schedule.Check(got))

	// What the pass declares is not only enough, it is the least that will do.
	for stage := range got.Windows {
		less := *got
		less.Windows = slices.Clone(got.Windows)
		less.Windows[stage]--
		requireCodes(t, schedule.Check(&less), schedule.WindowExceeded)
	}
	for rank := range got.Entries {
		less := *got
		less.Entries = slices.Clone(got.Entries)
		less.Entries[rank]--
		requireCodes(t, schedule.Check(&less), schedule.EntriesExceeded)
	}
	return got
}

func requireCodes(t require.TestingT, err error, codes ...schedule.Code) {
	require.ErrorIs(t, err, schedule.ErrInvalidPlan)
	require.Equal(t, codes, codesOf(err), "%v", err)
}

func TestLifetimesOfGenerators(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		params := drawParams(t)
		rule := schedule.DepthFirst
		if rapid.Bool().Draw(t, "breadth-first") {
			rule, params.Group = schedule.BreadthFirst, 0
		}
		p, err := rule(params)
		require.NoError(t, err)
		split := make([]bool, p.Placement.Stages())
		require.True(t, ordered(p, split))
		checkLifetimes(t, p, drawFacts(t, p, split))
	})
}

func TestLifetimesOfPipelined(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, split := drawPipelined(t)
		require.Equal(t, ordered(p, split), schedule.Check(p) == nil)
		facts := drawFacts(t, p, split)
		if !ordered(p, split) {
			_, err := schedule.Lifetimes(p, facts, parts)
			require.ErrorIs(t, err, schedule.ErrInvalidPlan)
			return
		}
		if got := checkLifetimes(t, p, facts); got != nil {
			require.LessOrEqual(t, len(got.Programs[0]), 64)
		}
	})
}

func TestLifetimesOfLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, split := drawList(t)
		require.True(t, ordered(p, split))
		checkLifetimes(t, p, drawFacts(t, p, split))
	})
}

func TestLifetimesOfChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, split := drawChunks(t)
		require.Equal(t, ordered(p, split), schedule.Check(p) == nil)
		if ordered(p, split) {
			checkLifetimes(t, p, drawFacts(t, p, split))
		}
	})
}

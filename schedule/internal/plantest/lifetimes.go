package plantest

import "slices"

import "github.com/stretchr/testify/require"

import "github.com/weir-ml/weir/schedule"
import "github.com/weir-ml/weir/schedule/check"
import "github.com/weir-ml/weir/schedule/lower"

// CheckLifetimes compares the pass with the oracle and proves the result. It returns nil if
// a plan cannot express the facts.
func CheckLifetimes(t require.TestingT, p *schedule.Plan, facts []schedule.Facts) *schedule.Plan {
	p = Quantized(t, p, facts)
	want := NewOracle(p, facts)
	got, err := lower.Lifetimes(p, facts, Parts)
	if want.Uneven || want.Unread {
		require.ErrorIs(t, err, schedule.ErrFacts)
		return nil
	}
	require.NoError(t, err)
	require.Equal(t, want.Windows, got.Windows)
	require.Equal(t, want.Entries, got.Entries)
	if got.Outgoing != nil {
		require.Equal(t, want.Outgoing, got.Outgoing)
	} else {
		require.Zero(t, Sum(want.Outgoing))
	}
	for rank := range p.Programs {
		bare, marked := slices.Collect(p.All(rank)), slices.Collect(got.All(rank))
		require.Len(t, marked, len(bare))
		for i, a := range marked {
			require.Equal(t, bare[i].WithDrop(want.Drops[rank][i]), a, "rank %d, action %d: %v~%v", rank, i, a, a.Drop())
		}
	}
	require.NoError(t, check.Plan(got))

	// The pass declares the minimum.
	for stage := range got.Windows {
		less := *got
		less.Windows = slices.Clone(got.Windows)
		less.Windows[stage]--
		RequireCodes(t, check.Plan(&less), check.WindowExceeded)
	}
	for stage, n := range got.Outgoing {
		if n == 0 {
			continue
		}
		less := *got
		less.Outgoing = slices.Clone(got.Outgoing)
		less.Outgoing[stage]--
		RequireCodes(t, check.Plan(&less), check.OutgoingExceeded)
	}
	for rank := range got.Entries {
		less := *got
		less.Entries = slices.Clone(got.Entries)
		less.Entries[rank]--
		RequireCodes(t, check.Plan(&less), check.EntriesExceeded)
	}
	return got
}

func RequireCodes(t require.TestingT, err error, codes ...check.Code) {
	require.ErrorIs(t, err, check.ErrInvalidPlan)
	require.Equal(t, codes, CodesOf(err), "%v", err)
}

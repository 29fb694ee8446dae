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
	for code, of := range map[check.Code]func(p *schedule.Plan) *[]int{
		check.WindowExceeded:   func(p *schedule.Plan) *[]int { return &p.Windows },
		check.OutgoingExceeded: func(p *schedule.Plan) *[]int { return &p.Outgoing },
		check.EntriesExceeded:  func(p *schedule.Plan) *[]int { return &p.Entries },
	} {
		for i, n := range *of(got) {
			if n == 0 && code == check.OutgoingExceeded {
				continue
			}
			less := *got
			list := of(&less)
			*list = slices.Clone(*list)
			(*list)[i]--
			RequireCodes(t, check.Plan(&less), code)
		}
	}
	return got
}

func RequireCodes(t require.TestingT, err error, codes ...check.Code) {
	require.ErrorIs(t, err, check.ErrInvalidPlan)
	require.Equal(t, codes, CodesOf(err), "%v", err)
}

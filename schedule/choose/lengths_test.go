package choose_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule/choose"
	"github.com/weir-ml/weir/schedule/lengths"
	"github.com/weir-ml/weir/schedule/simulate"
)

// The candidates for microbatches of different lengths are simulated with these lengths, and nothing is
// searched. If the lengths are equal, the choice is the same as for costs without lengths.
func TestLengths(t *testing.T) {
	costs := &simulate.Costs{Latency: 5, Stages: []simulate.StageCosts{{
		F: 7, Saved: 1, PerToken: simulate.Rates{F: 2, I: 2, W: 1.5, Output: 4, Saved: 8}, PerSquare: simulate.Rates{F: 0.25, I: 0.5},
	}}}
	r := choose.Request{Ranks: 4, Stages: 8, Microbatches: 8, Costs: costs, Capacity: 1}
	_, err := choose.Choose(r)
	require.ErrorIs(t, err, simulate.ErrCosts)
	require.ErrorContains(t, err, "give the lengths of all 8 microbatches")
	for mb := range 8 {
		costs.Lengths = append(costs.Lengths, lengths.Of(10+mb*mb, 3))
	}
	choice, err := choose.Choose(r)
	require.NoError(t, err)
	planned := 0
	for _, c := range choice.All {
		if c.Schedule == "searched chain" {
			require.ErrorContains(t, c.Refused, "only schedules with names are tried")
			continue
		}
		require.NotContains(t, c.Schedule, "searched")
		if c.Report != nil {
			planned++
			again, err := simulate.Run(c.Plan, costs, 1)
			require.NoError(t, err)
			require.Equal(t, again, c.Report)
		}
	}
	require.Greater(t, planned, 10)

	for mb := range costs.Lengths {
		costs.Lengths[mb] = lengths.Of(20)
	}
	choice, err = choose.Choose(r)
	require.NoError(t, err)
	r.Costs = costs.AtSize(lengths.Of(20))
	want, err := choose.Choose(r)
	require.NoError(t, err)
	require.Equal(t, want, choice)

	r.Costs = &simulate.Costs{Stages: []simulate.StageCosts{{PerToken: simulate.Rates{F: 2, B: 4}}}, Lengths: costs.Lengths}
	choice, err = choose.Choose(r)
	require.NoError(t, err)
	for _, c := range choice.All {
		if c.Schedule == "zb-h1" {
			require.ErrorContains(t, c.Refused, "it runs I and W, but the costs only have times of B")
		}
	}
}

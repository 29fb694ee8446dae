package metrics_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/trainer/metrics"
)

// The log has one record in Every, including the first of each step.
func TestEvery(t *testing.T) {
	for every, want := range map[int]int{0: 20, 1: 20, 4: 6, 100: 2} {
		var out bytes.Buffer
		run := metrics.New(1)
		run.Begin(metrics.Config{Spaces: []metrics.Space{nothing{}}, Log: &out, Every: every})
		for step := range 2 {
			_, err := run.Step(func() (*runner.Result, error) {
				for mb := range 10 {
					run.Hooks().Microbatch(&memory.Sample{Step: int64(step), Microbatch: mb})
				}
				return &runner.Result{Ranks: make([]runner.RankResult, 1)}, nil
			})
			require.NoError(t, err)
		}
		require.Equal(t, want, strings.Count(out.String(), "\n"), "Every %d", every)
	}
}

// An unknown standard error is not shown as 0.
func TestStandardUnknown(t *testing.T) {
	for _, standard := range []float64{0, math.NaN(), 0.25} {
		run := metrics.New(1)
		run.Begin(metrics.Config{Spaces: []metrics.Space{nothing{}}})
		result, err := run.Step(func() (*runner.Result, error) { return &runner.Result{Ranks: make([]runner.RankResult, 1)}, nil })
		require.NoError(t, err)
		run.FinishStep(1, result, 1, 1)
		run.AddScore(metrics.Score{Known: true, Step: 1, Loss: 2, Standard: standard})
		s := run.Summary()
		require.NotNil(t, s.LossHeldout)
		require.Equal(t, standard == 0.25, s.LossHeldoutStandard != nil)
		for _, fact := range run.Page().Facts {
			require.Equal(t, standard == 0.25 && fact.Label == "held-out loss", strings.Contains(fact.Note, "±"), fact.Note)
		}
	}
}

func TestRatio(t *testing.T) {
	mean, standard := metrics.Ratio([]float64{2, 6}, []float64{1, 3})
	require.Equal(t, 2.0, mean)
	require.Zero(t, standard)
	mean, standard = metrics.Ratio([]float64{1, 3, 2, 2}, []float64{1, 1, 1, 1})
	require.Equal(t, 2.0, mean)
	require.InDelta(t, math.Sqrt(2.0/3)/2, standard, 1e-12) // the sample's deviation over the root of 4
	_, standard = metrics.Ratio([]float64{1}, []float64{1})
	require.True(t, math.IsNaN(standard))
}

package metrics_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/metrics"
)

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

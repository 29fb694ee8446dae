package rate_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/rate"
)

func Example() {
	c := rate.Cosine{Peak: 1, Warmup: 4, Steps: 9, Least: 0.1}
	for step := range c.Steps {
		fmt.Printf("%.2f ", c.At(step))
	}
	// Output: 0.25 0.50 0.75 1.00 1.00 0.87 0.55 0.23 0.10
}

func TestCosine(t *testing.T) {
	c := rate.Cosine{Peak: 1, Warmup: 10, Steps: 100, Least: 0.05}
	for step, want := range map[int]float64{0: 0.1, 9: 1, 10: 1, 99: 0.05, 200: 0.05} {
		require.InDelta(t, want, c.At(step), 1e-6, step)
	}
	require.InDelta(t, 1, rate.Cosine{Peak: 1, Steps: 1, Least: 0.05}.At(0), 1e-6)
	for step := 10; step < 99; step++ {
		require.Greater(t, c.At(step), c.At(step+1))
	}
}

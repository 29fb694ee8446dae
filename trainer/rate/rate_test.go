package rate_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/trainer/rate"
)

func Example() {
	schedule := rate.Warmup(4, rate.Cosine(1, 5, 0.1))
	for step := range 9 {
		fmt.Printf("%.2f ", schedule(step))
	}
	// Output: 0.25 0.50 0.75 1.00 1.00 0.87 0.55 0.23 0.10
}

func TestSchedules(t *testing.T) {
	for _, c := range []struct {
		name     string
		schedule rate.Schedule
		want     map[int]float64
	}{
		{"constant", rate.Constant(3), map[int]float64{0: 3, 1 << 30: 3}},
		{"warmup", rate.Warmup(10, rate.Constant(2)), map[int]float64{0: 0.2, 8: 1.8, 9: 2, 10: 2}},
		{"no warmup", rate.Warmup(0, rate.Constant(2)), map[int]float64{0: 2}},
		{"cosine", rate.Cosine(2, 101, 0.05), map[int]float64{0: 2, 50: 1.05, 100: 0.1, 200: 0.1}},
		{"linear", rate.Linear(2, 101, 0), map[int]float64{0: 2, 25: 1.5, 100: 0, 200: 0}},
		{"one step", rate.Cosine(1, 1, 0.05), map[int]float64{0: 1}},
		{"stable", rate.Stable(2, 100, 20, 0.5), map[int]float64{0: 2, 79: 2, 89: 1.5, 99: 1, 200: 1}},
		{"stable, never down", rate.Stable(2, 100, 0, 0.5), map[int]float64{0: 2, 99: 2}},
		{"inverse square root", rate.InverseSqrt(2, 100), map[int]float64{0: 2, 300: 1, 800: 2. / 3}},
	} {
		for step, want := range c.want {
			require.InDelta(t, want, c.schedule(step), 1e-6, "%s at step %d", c.name, step)
		}
		for step := 20; step < 300; step++ {
			require.LessOrEqual(t, c.schedule(step+1), c.schedule(step), "%s at step %d", c.name, step)
		}
	}
}

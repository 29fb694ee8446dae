package placement_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/memory/placement"
)

// 1F1B with six layers and four microbatches in flight, whose sizes repeat with a
// period: planned from 40 periods, and right for any number of microbatches.
func TestLoop(t *testing.T) {
	const layers = 6
	periods, most := []int{1, 4, 5, 9}, 0.01
	if *long {
		periods, most = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 24}, 0.02
	}
	for seed, period := range periods {
		rng := rand.New(rand.NewPCG(uint64(seed), 8))
		bytes := make([]int64, layers*period)
		for i := range bytes {
			bytes[i] = (1<<16 + rng.Int64N(1<<20)) &^ 63
		}
		size := func(layer, microbatch int) int64 { return bytes[microbatch%period*layers+layer] }

		beginning := pipeline(40*period+4, 4, size)
		var times []int64
		for k := 1; k < 40; k++ { // from when four are in flight
			times = append(times, beginning.Buffers[k*period*layers].Lower)
		}
		if period < 4 {
			times = times[4:]
		}
		layout, from, to, err := placement.PlanLoop(t.Context(), beginning, times, placement.Options{})
		require.NoError(t, err)
		require.Positive(t, to, "period %d", period)

		first := int((times[from] - 3*layers) / (2 * layers)) // microbatch
		cycle := (to - from) * period
		gap := float64(0)
		for _, microbatches := range []int{256, 4096} {
			whole := pipeline(microbatches, 4, size)
			offsets := make([]int64, len(whole.Buffers))
			for i := range offsets {
				mb, layer := i/layers, i%layers
				if mb >= first+3 {
					mb = first + 3 + (mb-first-3)%cycle
				}
				offsets[i] = layout.Offsets[mb*layers+layer]
			}
			height, err := placement.Check(whole, offsets)
			require.NoError(t, err, "period %d: the loop of %d microbatches, repeated", period, cycle)
			gap = float64(height)/float64(whole.Bound()) - 1
		}
		t.Logf("period %d: from microbatch %d on a loop of %d, gap %.3f %%, %s", period, first+3, cycle, 100*gap, layout.Method)
		require.Less(t, gap, most, "period %d", period)
	}
}

func TestLoopRefuses(t *testing.T) {
	p := &placement.Problem{Buffers: []placement.Buffer{{Lower: 0, Upper: 9, Size: 1, Gaps: []placement.Gap{{Lower: 2, Upper: 3}}}}}
	_, _, _, err := placement.PlanLoop(t.Context(), p, []int64{1, 2}, placement.Options{})
	require.ErrorIs(t, err, placement.ErrProblem)

	p.Buffers[0].Gaps = nil
	_, _, _, err = placement.PlanLoop(t.Context(), p, []int64{2, 1}, placement.Options{})
	require.ErrorIs(t, err, placement.ErrProblem)

	layout, _, to, err := placement.PlanLoop(t.Context(), p, []int64{1, 2}, placement.Options{})
	require.NoError(t, err, "what does not repeat is no loop, and is laid out")
	require.Zero(t, to)
	require.True(t, layout.Optimal)
}

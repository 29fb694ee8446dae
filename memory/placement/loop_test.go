package placement_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/memory/placement"
)

// inFlight returns a round of 1F1B with six layers and four microbatches in flight: a
// period of microbatches, each of which saves what it likes.
func inFlight(rng *rand.Rand, period int) *placement.Round {
	const layers = 6
	bytes := make([]int64, layers*period)
	for i := range bytes {
		bytes[i] = (1<<16 + rng.Int64N(1<<20)) &^ 63
	}
	whole := pipeline(4*period+8, 4, func(layer, microbatch int) int64 { return bytes[microbatch%period*layers+layer] })
	first := (4/period + 1) * period * layers // from when four are in flight
	born := whole.Buffers[first].Lower
	r := &placement.Round{Period: int64(2 * layers * period)}
	for _, b := range whole.Buffers[first : first+period*layers] {
		b.Lower, b.Upper = b.Lower-born, b.Upper-born
		r.Buffers = append(r.Buffers, b)
	}
	return r
}

// 1F1B with six layers and four microbatches in flight, whose sizes repeat with a
// period: planned from one period, and right for ever.
func TestRoundOfVariableSizes(t *testing.T) {
	if testkit.Raced {
		t.Skip("large, and has no goroutines that smaller searches do not have")
	}
	periods := []int{1, 3, 4, 5, 6, 7, 9}
	if *testkit.Long {
		periods = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 24}
	}
	for _, period := range periods {
		r := inFlight(rand.New(rand.NewPCG(uint64(period), 8)), period)
		laid, err := placement.PlanRound(t.Context(), r, placement.Options{Nodes: 1_000_000})
		require.NoError(t, err)
		p, offsets := unrolled(r, laid, 256/period)
		_, err = placement.Check(p, offsets)
		require.NoError(t, err, "period %d: %s", period, laid.Method)
		t.Logf("period %d: a cycle of %d, gap %.3f %%, %s", period, laid.Cycle*period, 100*laid.Gap(), laid.Method)
		require.Less(t, laid.Gap(), 0.01, "period %d", period)
	}
}

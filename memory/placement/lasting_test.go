package placement_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/memory/placement/internal/instances"
)

// A rank of 1F1B that keeps what it saves, with equal lengths (seed 0) and with lengths
// that were told.
func TestKeeping(t *testing.T) {
	if testkit.Raced {
		t.Skip("large, and has no goroutines that smaller searches do not have")
	}
	seeds := uint64(3)
	if *testkit.Long {
		seeds = 24
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 12))
		lengths := make([]int64, 16)
		for i := range lengths {
			lengths[i] = 4096
			if seed > 0 {
				lengths[i] -= 256 * rng.Int64N(9)
			}
		}
		p := instances.Keeping(lengths, 8)
		layout := plan(t, p, placement.Options{Nodes: 200_000})
		t.Logf("seed %d, %d buffers: gap %.3f %%, %s", seed, len(p.Buffers), 100*layout.Gap(), layout.Method)
		require.Less(t, layout.Gap(), 0.003, "seed %d", seed)
	}
}

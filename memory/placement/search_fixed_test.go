package placement_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/memory/placement"
)

// leastAround tries all orders in which what is not fixed can be placed, each buffer at
// the lowest offset. Any layout, pushed down, is one of these.
func leastAround(p *placement.Problem, fixed []int64) int64 {
	offsets := make([]int64, len(fixed))
	var placed []int
	var height int64
	for i, at := range fixed {
		if at >= 0 {
			offsets[i] = at
			placed = append(placed, i)
			height = max(height, at+p.Buffers[i].Size)
		}
	}
	best := int64(math.MaxInt64)
	used := make([]bool, len(fixed))
	var place func(placed []int, height int64)
	place = func(placed []int, height int64) {
		if len(placed) == len(fixed) {
			best = min(best, height)
			return
		}
		for i := range p.Buffers {
			if used[i] || fixed[i] >= 0 {
				continue
			}
			b := &p.Buffers[i]
			at := int64(0)
			for again := true; again; {
				again = false
				for b.Align > 1 && at%b.Align != 0 {
					at++
				}
				for _, k := range placed {
					o := &p.Buffers[k]
					if meet(b, o) && at < offsets[k]+o.Size && offsets[k] < at+b.Size {
						at, again = offsets[k]+o.Size, true
					}
				}
			}
			offsets[i], used[i] = at, true
			place(append(placed, i), max(height, at+b.Size))
			used[i] = false
		}
	}
	place(placed, height)
	return best
}

// fixSome fixes one to three buffers where they are not in each other's way.
func fixSome(rng *rand.Rand, p *placement.Problem) []int64 {
	fixed := make([]int64, len(p.Buffers))
	for i := range fixed {
		fixed[i] = -1
	}
	for range 1 + rng.IntN(3) {
		i := rng.IntN(len(fixed))
		was := fixed[i]
		fixed[i] = rng.Int64N(12) / max(p.Buffers[i].Align, 1) * max(p.Buffers[i].Align, 1)
		var some placement.Problem
		var offsets []int64
		for k, at := range fixed {
			if at >= 0 {
				some.Buffers, offsets = append(some.Buffers, p.Buffers[k]), append(offsets, at)
			}
		}
		if _, err := placement.Check(&some, offsets); err != nil {
			fixed[i] = was
		}
	}
	return fixed
}

// The search finds the least height around what is fixed, and proves it.
func TestSearchAroundFixed(t *testing.T) {
	above := 0 // problems that are higher for what is fixed
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 21))
		p := tight(rng, 3+rng.IntN(5), seed%2 == 1, seed%4 > 1)
		fixed := fixSome(rng, p)
		least := leastAround(p, fixed)
		if least > leastHeight(p) {
			above++
		}
		offsets, outcome, _ := placement.SearchAround(t.Context(), p, fixed, least, 1e6, seed)
		require.Equal(t, placement.Solved, outcome, "seed %d: %v around %v", seed, p.Buffers, fixed)
		height, err := placement.Check(p, offsets)
		require.NoError(t, err, "seed %d", seed)
		require.LessOrEqual(t, height, least, "seed %d", seed)
		for i, at := range fixed {
			if at >= 0 {
				require.Equal(t, at, offsets[i], "seed %d: buffer %d", seed, i)
			}
		}
		_, outcome, _ = placement.SearchAround(t.Context(), p, fixed, least-1, 1e6, seed)
		require.Equal(t, placement.Impossible, outcome, "seed %d: %v around %v", seed, p.Buffers, fixed)
	}
	require.Greater(t, above, 200)
}

// What is fixed stays so through every stage of Plan.
func TestPlanAroundFixed(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 22))
		p := random(rng, 60, seed%2 == 1, seed%4 > 1)
		first, err := placement.Plan(t.Context(), p, placement.Options{Nodes: 1})
		require.NoError(t, err)
		fixed := first.Offsets
		for i := range fixed {
			if rng.IntN(3) > 0 {
				fixed[i] = -1
			}
		}
		laid, err := placement.Plan(t.Context(), p, placement.Options{Nodes: 50_000, Fixed: fixed})
		require.NoError(t, err, "seed %d", seed)
		for i, at := range fixed {
			if at >= 0 {
				require.Equal(t, at, laid.Offsets[i], "seed %d: buffer %d", seed, i)
			}
		}
	}
}

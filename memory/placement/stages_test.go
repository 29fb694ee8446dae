package placement_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/internal/placement/instances"
	"github.com/weir-ml/weir/memory/placement"
)

// Every method produces valid layouts, not only when it wins the race, and respects its limit.
func TestEveryWay(t *testing.T) {
	ring, lasting := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 9))
		p := instances.Random(rng, 40, seed%2 == 1, seed%4 > 1)
		names, all := placement.Recipes(p)
		for i, offsets := range all {
			require.True(t, valid(p, offsets), "seed %d: %s", seed, names[i])
		}
		if seed%2 == 1 {
			continue // the other methods do not support gaps
		}
		for percent := int64(105); percent < 160; percent += 10 {
			limit := p.Bound() * percent / 100
			if offsets, found := placement.Ring(p, limit, limit/3); found {
				ring++
				require.True(t, valid(p, offsets), "seed %d: ring", seed)
				height, _ := placement.Check(p, offsets)
				require.LessOrEqual(t, height, limit, "seed %d: ring", seed)
			}
			if offsets, found := placement.Lasting(p, limit, limit/3); found {
				lasting++
				var long placement.Problem
				var at []int64
				for i, b := range p.Buffers {
					if offsets[i] >= 0 {
						long.Buffers, at = append(long.Buffers, b), append(at, offsets[i])
					}
				}
				height, err := placement.Check(&long, at)
				require.NoError(t, err, "seed %d: lasting", seed)
				require.LessOrEqual(t, height, limit, "seed %d: lasting", seed)
				require.Greater(t, len(at), len(p.Buffers)/3, "seed %d: lasting", seed)
			}
		}
	}
	require.Greater(t, ring, 20)
	require.Greater(t, lasting, 20)
}

// heights returns the height of every recipe's layout, by the recipe's name.
func heights(t *testing.T, p *placement.Problem) map[string]int64 {
	out := map[string]int64{}
	names, all := placement.Recipes(p)
	for i, offsets := range all {
		height, err := placement.Check(p, offsets)
		require.NoError(t, err)
		out[names[i]] = height
	}
	return out
}

// The best fit uses the hole that a buffer fills exactly, and leaves the large one free.
func TestBestFit(t *testing.T) {
	h := heights(t, &placement.Problem{Buffers: []placement.Buffer{
		{Lower: 0, Upper: 5, Size: 4}, // leaves a hole of 4 at the bottom
		{Lower: 1, Upper: 9, Size: 1}, // separates the holes
		{Lower: 2, Upper: 5, Size: 2}, // leaves a hole of 2
		{Lower: 3, Upper: 9, Size: 1}, // separates the holes
		{Lower: 6, Upper: 9, Size: 2}, // belongs in the hole of 2
		{Lower: 7, Upper: 9, Size: 4}, // belongs in the hole of 4
	}})
	require.EqualValues(t, 8, h["in order of birth, best fit"])
}

// Buffers that are live at the fullest time are packed first, without a hole. A large buffer of
// another time, placed before them, would leave one.
func TestFullestFirst(t *testing.T) {
	p := instances.Training(rand.New(rand.NewPCG(200, 1)), 60, 1<<20)
	h := heights(t, p)
	require.Greater(t, h["larger first, first fit"], p.Bound())
	require.Equal(t, p.Bound(), min(
		h["the fullest time first, there longer first; then larger first; first fit"],
		h["the fullest time first, there the last to die first; then larger first; first fit"],
		h["the fullest time first, there in order of birth; then larger first; first fit"]))
}

// Buffers that are too high are placed earlier, and so end lower.
func TestReordering(t *testing.T) {
	lower := 0
	for seed := range uint64(20) {
		p := instances.Random(rand.New(rand.NewPCG(seed, 10)), 150, false, false)
		first, least := placement.Reordered(p, 30, seed)
		require.LessOrEqual(t, least, first)
		if first > p.Bound() && (first-least)*4 >= first-p.Bound() {
			lower++ // by a quarter of the gap
		}
	}
	require.GreaterOrEqual(t, lower, 10)
}

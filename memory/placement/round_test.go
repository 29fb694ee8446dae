package placement_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/memory/placement"
)

// goingOn returns what is born in each period of a pipeline: layers that are saved by a
// forward, for some periods, and work between.
func goingOn(rng *rand.Rand, layers, inFlight int) *placement.Round {
	r := &placement.Round{Period: int64(6 * layers)}
	sizes := []int64{64, 512, 4096, 4096, 12288, 16384}
	for k := range int64(layers) {
		saved := placement.Buffer{Lower: 3 * k, Size: sizes[rng.IntN(len(sizes))], Align: 64}
		saved.Upper = int64(inFlight)*r.Period - 3*k - 1 - rng.Int64N(2)
		work := placement.Buffer{Lower: 3*k + 1, Upper: 3*k + 2 + rng.Int64N(4), Size: sizes[rng.IntN(len(sizes))], Align: 64}
		back := placement.Buffer{Lower: r.Period - 3*k - 3, Upper: r.Period - 3*k - 1 + rng.Int64N(6), Size: sizes[rng.IntN(len(sizes))], Align: 64}
		r.Buffers = append(r.Buffers, saved, work, back)
	}
	return r
}

// unrolled returns the first periods of a round as a problem, and the offsets of a layout.
func unrolled(r *placement.Round, laid *placement.RoundLayout, periods int) (*placement.Problem, []int64) {
	p := &placement.Problem{}
	var offsets []int64
	for k := range periods {
		for i, b := range r.Buffers {
			b.Lower, b.Upper = b.Lower+int64(k)*r.Period, b.Upper+int64(k)*r.Period
			p.Buffers = append(p.Buffers, b)
			offsets = append(offsets, laid.Offsets[k%laid.Cycle*len(r.Buffers)+i])
		}
	}
	return p, offsets
}

// A layout of a round holds for ever, and is as low as it says.
func TestRound(t *testing.T) {
	cycles := map[int]bool{}
	met := 0
	for seed := range uint64(24) {
		rng := rand.New(rand.NewPCG(seed, 31))
		r := goingOn(rng, 3+rng.IntN(5), 1+rng.IntN(4))
		laid, err := placement.PlanRound(t.Context(), r, placement.Options{Nodes: 100_000})
		require.NoError(t, err, "seed %d", seed)
		p, offsets := unrolled(r, laid, 200)
		height, err := placement.Check(p, offsets)
		require.NoError(t, err, "seed %d: %s", seed, laid.Method)
		require.Equal(t, laid.Height, height, "seed %d", seed)
		require.Equal(t, p.Bound(), laid.Bound, "seed %d", seed)
		require.Equal(t, laid.Height == laid.Bound, laid.Optimal)
		require.Less(t, laid.Gap(), 0.15, "seed %d", seed)
		cycles[laid.Cycle] = true
		if laid.Optimal {
			met++
		}
		again, err := placement.PlanRound(t.Context(), r, placement.Options{Nodes: 100_000})
		require.NoError(t, err)
		require.Equal(t, laid, again, "seed %d", seed)
	}
	t.Logf("%d of 24 at the bound, cycles %v", met, cycles)
	require.GreaterOrEqual(t, met, 12)
	require.Greater(t, len(cycles), 3)
}

// Three kinds that live for 4/3 of a period each, side by side: two periods of cycle
// cannot be without waste, four can.
func TestRoundFindsItsCycle(t *testing.T) {
	r := &placement.Round{Period: 3, Buffers: []placement.Buffer{{Lower: 0, Upper: 4, Size: 64}, {Lower: 1, Upper: 5, Size: 64}, {Lower: 2, Upper: 6, Size: 64}}}
	laid, err := placement.PlanRound(t.Context(), r, placement.Options{})
	require.NoError(t, err)
	require.EqualValues(t, 4*64, laid.Bound)
	require.True(t, laid.Optimal, "%+v", laid)
	require.Equal(t, 4, laid.Cycle)
	p, offsets := unrolled(r, laid, 40)
	_, err = placement.Check(p, offsets)
	require.NoError(t, err)
}

func TestRoundRefuses(t *testing.T) {
	for name, r := range map[string]placement.Round{
		"no period":     {Buffers: []placement.Buffer{{Lower: 0, Upper: 1, Size: 1}}},
		"born later":    {Period: 4, Buffers: []placement.Buffer{{Lower: 4, Upper: 5, Size: 1}}},
		"gaps":          {Period: 9, Buffers: []placement.Buffer{{Lower: 0, Upper: 5, Size: 1, Gaps: []placement.Gap{{Lower: 2, Upper: 3}}}}},
		"never dies":    {Period: 1, Buffers: []placement.Buffer{{Lower: 0, Upper: 1 << 40, Size: 1}}},
		"no bytes":      {Period: 4, Buffers: []placement.Buffer{{Lower: 0, Upper: 5}}},
		"dies at birth": {Period: 4, Buffers: []placement.Buffer{{Lower: 2, Upper: 2, Size: 1}}},
	} {
		_, err := placement.PlanRound(t.Context(), &r, placement.Options{})
		require.ErrorIs(t, err, placement.ErrProblem, name)
	}
	laid, err := placement.PlanRound(t.Context(), &placement.Round{Period: 1}, placement.Options{})
	require.NoError(t, err)
	require.Zero(t, laid.Height)
}

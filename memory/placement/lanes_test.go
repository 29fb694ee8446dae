package placement_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/memory/placement"
)

// right requires that a layout of a round holds over some of its cycles, and returns the
// bound.
func right(t *testing.T, r *placement.Round, laid *placement.RoundLayout) (bound int64) {
	t.Helper()
	require.NotNil(t, laid)
	p, offsets := unrolled(r, laid, 3*laid.Cycle+3)
	height, err := placement.Check(p, offsets)
	require.NoError(t, err)
	require.Equal(t, laid.Height, height)
	return p.Bound()
}

// fewSizes returns a round of buffers of few sizes, that live long or not.
func fewSizes(rng *rand.Rand) *placement.Round {
	r := &placement.Round{Period: 20 + rng.Int64N(60)}
	sizes := []int64{64, 128, 512, 1536, 2048, 2496}[:2+rng.IntN(5)]
	for range 4 + rng.IntN(30) {
		life := 1 + rng.Int64N(r.Period/2)
		if rng.IntN(3) == 0 {
			life += rng.Int64N(4 * r.Period)
		}
		at := rng.Int64N(r.Period)
		r.Buffers = append(r.Buffers, placement.Buffer{Lower: at, Upper: at + life, Size: sizes[rng.IntN(len(sizes))] - rng.Int64N(2)*8, Align: 8 << rng.IntN(4)})
	}
	return r
}

// Lanes are right whatever comes, with stacks and turns, and the same for a seed.
func TestLanes(t *testing.T) {
	met, seeds := 0, 100
	if testkit.Raced { // lanes are of one goroutine
		seeds = 10
	}
	for seed := range uint64(seeds) {
		r := fewSizes(rand.New(rand.NewPCG(seed, 5)))
		laid := placement.Lanes(r, 8_000, seed)
		if laid == nil { // a cycle beyond all use
			continue
		}
		if right(t, r, laid) == laid.Height {
			met++
		}
		require.Equal(t, laid, placement.Lanes(r, 8_000, seed), "seed %d", seed)
	}
	t.Logf("%d of %d at the bound", met, seeds)
	require.True(t, testkit.Raced || met > 0)
}

// A workspace, and a statistic that is born before that of the period before has died, of
// which only one is alive at the workspace. In lanes of their own there are two.
func TestLanesTakeTurns(t *testing.T) {
	r := &placement.Round{Period: 132, Buffers: []placement.Buffer{
		{Lower: 77, Upper: 236, Size: 512, Align: 64},
		{Lower: 121, Upper: 122, Size: 16000, Align: 64},
	}}
	laid := placement.Lanes(r, 10_000, 0)
	require.Equal(t, right(t, r, laid), laid.Height)
	require.EqualValues(t, 16512, laid.Height)
	require.Equal(t, 2, laid.Cycle)
}

// What lives in a period of ZB-H1, on a rank in the middle, in units of an activation. One
// of size 1 is born at 129, when 50 of them and one of size 3 less are alive than at the
// peak at 121: it needs a place that was none of size 1 then. So a place of size 3 goes
// from one that dies at 125 to three rows of smaller ones, and back.
func TestLanesStack(t *testing.T) {
	r := &placement.Round{Period: 132}
	for _, b := range [][3]int64{ // size, birth, death
		{4, 59, 551}, {4, 66, 68}, {4, 81, 529}, {4, 88, 90}, {4, 92, 402}, {4, 112, 424},
		{3, 47, 257}, {3, 69, 237}, {3, 100, 413}, {3, 120, 435},
		{2, 101, 102}, {2, 121, 122},
		{1, 3, 7}, {1, 14, 18}, {1, 25, 29}, {1, 36, 40}, {1, 46, 572}, {1, 48, 53}, {1, 54, 562}, {1, 58, 561},
		{1, 60, 65}, {1, 67, 550}, {1, 70, 75}, {1, 76, 540}, {1, 80, 539}, {1, 82, 87}, {1, 89, 177}, {1, 91, 398},
		{1, 93, 404}, {1, 96, 409}, {1, 99, 103}, {1, 106, 415}, {1, 109, 420}, {1, 113, 426}, {1, 116, 431},
		{1, 119, 123}, {1, 126, 437}, {1, 129, 264},
	} {
		r.Buffers = append(r.Buffers, placement.Buffer{Lower: b[1], Upper: b[2], Size: b[0]})
	}
	met := 0
	for seed := range uint64(5) {
		laid := placement.Lanes(r, 100_000, seed)
		require.EqualValues(t, 135, right(t, r, laid))
		if laid.Height == 135 {
			met++
		}
	}
	require.GreaterOrEqual(t, met, 4)
}

// A period with too many times to look at, a cycle of too many buffers, many sizes, or
// enormous ones, are not for lanes.
func TestLanesKnowTheirLimits(t *testing.T) {
	require.Nil(t, placement.Lanes(&placement.Round{Period: 1 << 30, Buffers: []placement.Buffer{{Upper: 1, Size: 1}}}, 1000, 0))
	require.Nil(t, placement.Lanes(&placement.Round{Period: 2, Buffers: []placement.Buffer{{Upper: 1 << 20, Size: 1}}}, 1000, 0))
	r := &placement.Round{Period: 100}
	for k := range int64(40) {
		r.Buffers = append(r.Buffers, placement.Buffer{Lower: k, Upper: k + 50, Size: 100 + k})
	}
	require.Nil(t, placement.Lanes(r, 1000, 0), "many sizes")
	r = &placement.Round{Period: 10, Buffers: []placement.Buffer{{Upper: 30, Size: 1 << 60, Align: 1 << 60}}}
	require.Nil(t, placement.Lanes(r, 1000, 0), "sums beyond int64")
}

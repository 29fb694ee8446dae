package placement_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/internal/testkit"
	"github.com/weir-ml/weir/memory/placement"
)

// queue is what is born in turns of a few buffers each and dies in about that order, up to
// so many turns later.
func queue(rng *rand.Rand, turns, lives int, aligned bool) *placement.Problem {
	p := &placement.Problem{}
	for k := range int64(turns) {
		life := int64(1 + rng.IntN(lives))
		for range 1 + rng.IntN(9) {
			b := placement.Buffer{Lower: 2 * k, Upper: 2*(k+life) - 1, Size: 1 + rng.Int64N(1000)}
			if aligned {
				b.Align = 1 << rng.IntN(6)
			}
			if rng.IntN(8) == 0 {
				b.Upper = 2*k + 1 + 2*rng.Int64N(life)
			}
			p.Buffers = append(p.Buffers, b)
		}
	}
	return p
}

// Laps do not overlap, whatever lives how long.
func TestLaps(t *testing.T) {
	found, low := 0, 0
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 13))
		var p *placement.Problem
		if aligned := seed%2 == 1; seed%3 == 0 {
			p = random(rng, 3+rng.IntN(20), false, aligned)
		} else {
			p = queue(rng, 2+rng.IntN(40), 1+rng.IntN(6), aligned)
		}
		offsets := placement.Laps(p)
		if offsets == nil {
			continue
		}
		found++
		height, err := placement.Check(p, offsets)
		require.NoError(t, err, "seed %d", seed)
		if height <= p.Bound()*103/100 {
			low++
		}
	}
	t.Logf("%d found, of which %d within 3 %% of the bound", found, low)
	require.Greater(t, found, 40)
	require.Greater(t, low, 20)
}

// 1F1B with six layers and four microbatches in flight: periods of microbatches come back
// within 1 % of the bound. Three are the hardest: one draw of 20 is above that.
func TestLapsOfRounds(t *testing.T) {
	periods, seeds, most := []int{1, 2, 3, 5, 6, 7, 11}, uint64(4), 0.01
	if *testkit.Long {
		periods, seeds, most = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 24, 64}, 20, 0.012
	}
	for _, period := range periods {
		worst := 0.0
		for seed := range seeds {
			rng := rand.New(rand.NewPCG(uint64(period), 8+seed))
			r := inFlight(rng, period)
			laid := placement.LapsOf(r)
			require.NotNil(t, laid, "period %d, seed %d", period, seed)
			p, offsets := unrolled(r, laid, 2*laid.Cycle+8)
			height, err := placement.Check(p, offsets)
			require.NoError(t, err, "period %d, seed %d", period, seed)
			require.Equal(t, height, laid.Height)
			worst = max(worst, float64(height)/float64(p.Bound())-1)
		}
		t.Logf("period %d: at most %.3f %%", period, 100*worst)
		require.Less(t, worst, most, "period %d", period)
	}
}

// Rounds of all kinds: what is laid out in laps is right for ever.
func TestLapsOfAnyRound(t *testing.T) {
	found := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 14))
		r := &placement.Round{Period: 2 * (1 + rng.Int64N(6))}
		life := 1 + 2*rng.Int64N(8)
		for at := int64(0); at < r.Period; at += 2 {
			born := (at + 2*rng.Int64N(2)) % r.Period // some places twice, some never
			for range 3 + rng.IntN(5) {
				b := placement.Buffer{Lower: born, Upper: born + life, Size: 1 + rng.Int64N(1000), Align: 1 << rng.IntN(4)}
				if born == 0 && rng.IntN(2) == 0 { // with those of the next period's beginning
					b.Lower, b.Upper = r.Period-1, r.Period+life
				}
				r.Buffers = append(r.Buffers, b)
			}
		}
		if laid := placement.LapsOf(r); laid != nil {
			found++
			p, offsets := unrolled(r, laid, 2*laid.Cycle+20)
			height, err := placement.Check(p, offsets)
			require.NoError(t, err, "seed %d", seed)
			require.LessOrEqual(t, height, laid.Height, "seed %d", seed)
		}
	}
	t.Logf("%d found", found)
	require.Greater(t, found, 40)
}

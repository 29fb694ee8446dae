package exact_test

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-ml/weir/internal/placement/exact"
	"github.com/weir-ml/weir/internal/placement/instances"
	"github.com/weir-ml/weir/internal/placement/minimalloc"
	"github.com/weir-ml/weir/memory/placement"
)

// leastHeight tries all orders in which buffers can be stacked. Any layout, pushed down, is a
// stack in order of offset.
func leastHeight(p *placement.Problem) int64 {
	n := len(p.Buffers)
	offsets := make([]int64, n)
	var stacked []int
	used := make([]bool, n)
	best := int64(math.MaxInt64)
	var stack func(height int64)
	stack = func(height int64) {
		if len(stacked) == n {
			best = min(best, height)
		}
		for i := range p.Buffers {
			if used[i] {
				continue
			}
			b := &p.Buffers[i]
			at := int64(0)
			for _, k := range stacked {
				if instances.Meet(b, &p.Buffers[k]) {
					at = max(at, offsets[k]+p.Buffers[k].Size)
				}
			}
			for b.Align > 1 && at%b.Align != 0 {
				at++
			}
			offsets[i], used[i] = at, true
			stacked = append(stacked, i)
			stack(max(height, at+b.Size))
			stacked = stacked[:len(stacked)-1]
			used[i] = false
		}
	}
	stack(0)
	return best
}

// tight returns a few random buffers, most of which overlap each other in time.
func tight(rng *rand.Rand, n int, gaps, aligned bool) *placement.Problem {
	p := &placement.Problem{}
	for range n {
		b := placement.Buffer{Lower: rng.Int64N(8), Size: 1 + rng.Int64N(9)}
		b.Upper = b.Lower + 1 + rng.Int64N(8)
		if aligned && rng.IntN(2) == 0 {
			b.Align = 1 << rng.IntN(4)
		}
		if d := b.Upper - b.Lower; gaps && d > 2 {
			g := placement.Gap{Lower: b.Lower + 1 + rng.Int64N(d-2)}
			g.Upper = g.Lower + 1 + rng.Int64N(b.Upper-1-g.Lower)
			b.Gaps = []placement.Gap{g}
		}
		p.Buffers = append(p.Buffers, b)
	}
	return p
}

// The search finds the minimal height, and proves it.
func TestSearchIsExact(t *testing.T) {
	above := 0 // problems whose minimal height exceeds their bound
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 11))
		p := tight(rng, 3+rng.IntN(5), seed%2 == 1, seed%4 > 1)
		least := leastHeight(p)
		if least > p.Bound() {
			above++
		}

		offsets, outcome, _ := exact.Search(t.Context(), p, least, 1e6, seed)
		require.Equal(t, exact.Solved, outcome, "seed %d: %v", seed, p.Buffers)
		height, err := placement.Check(p, offsets)
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, least, height, "seed %d", seed)
		_, outcome, _ = exact.Search(t.Context(), p, least-1, 1e6, seed)
		require.Equal(t, exact.Impossible, outcome, "seed %d: %v", seed, p.Buffers)

		offsets, proven, _ := exact.Minimise(t.Context(), p, least+20, 1e6, seed)
		height, err = placement.Check(p, offsets)
		require.NoError(t, err, "seed %d", seed)
		require.Equal(t, least, height, "seed %d: %v", seed, p.Buffers)
		require.Equal(t, least, proven, "seed %d: %v", seed, p.Buffers)
		offsets, proven, _ = exact.Minimise(t.Context(), p, least, 1e6, seed)
		require.Nil(t, offsets, "seed %d", seed)
		require.Equal(t, least, proven, "seed %d", seed)
	}
	require.Greater(t, above, 50)
}

// Pieces cut from a rectangle can be packed into it again.
func TestSearchPacksPerfectly(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 12))
		cut := instances.Guillotine(rng, 60, 1<<16, 20+6*int(seed))
		for _, p := range []*placement.Problem{cut, instances.Reversed(cut), instances.Shuffled(rng, cut), instances.Scaled(cut, 3, 5), instances.Pinwheels(rng, 4)} {
			offsets, outcome, _ := exact.Search(t.Context(), p, p.Bound(), 4e6, seed)
			require.Equal(t, exact.Solved, outcome, "seed %d", seed)
			height, err := placement.Check(p, offsets)
			require.NoError(t, err)
			require.Equal(t, p.Bound(), height)
		}
	}
}

// The result depends neither on time nor on the number of processors.
func TestSearchIsDeterministic(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	p := instances.Guillotine(rand.New(rand.NewPCG(4, 13)), 100, 1000, 200)
	type result struct {
		offsets []int64
		outcome any
		nodes   int64
	}
	outcomes := map[any]int{}
	for seed := range uint64(3) {
		for _, budget := range []int64{4e3, 1e5} {
			var first result
			for processors := 1; processors <= 5; processors += 2 {
				runtime.GOMAXPROCS(processors)
				offsets, outcome, nodes := exact.Search(t.Context(), p, p.Bound(), budget, seed)
				require.LessOrEqual(t, nodes, budget+budget/10)
				r := result{offsets, outcome, nodes}
				if processors == 1 {
					first = r
				}
				require.Equal(t, first, r, "seed %d, budget %d, %d processors", seed, budget, processors)
				outcomes[outcome]++
			}
		}
	}
	require.Len(t, outcomes, 2, "some searches give up, some do not: %v", outcomes)
}

func TestSearchGivesUp(t *testing.T) {
	p := instances.Guillotine(rand.New(rand.NewPCG(1, 14)), 40, 1<<16, 60)
	_, outcome, nodes := exact.Search(t.Context(), p, p.Bound(), 0, 0)
	require.Equal(t, exact.GaveUp, outcome)
	require.Zero(t, nodes)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, outcome, _ = exact.Search(ctx, p, p.Bound(), math.MaxInt64, 0)
	require.Equal(t, exact.GaveUp, outcome)

	large := &placement.Problem{Buffers: make([]placement.Buffer, 5000)} // 12.5 million pairs
	for i := range large.Buffers {
		large.Buffers[i] = placement.Buffer{Lower: int64(i), Upper: int64(i) + 5000, Size: 1 + int64(i%3)}
	}
	_, outcome, nodes = exact.Search(t.Context(), large, large.Bound(), math.MaxInt64, 0)
	require.Equal(t, exact.GaveUp, outcome)
	require.Zero(t, nodes)
}

// TestSearchPublished solves instances of MiniMalloc that are known to be hard.
func TestSearchPublished(t *testing.T) {
	const capacity = 1 << 20
	for _, name := range []string{"B", "D", "F", "G", "J"} {
		t.Run(name, func(t *testing.T) {
			file, err := os.Open(filepath.Join(instances.Published(), name+".1048576.csv"))
			if err != nil {
				t.Skip(err)
			}
			defer file.Close()
			in, err := minimalloc.Read(file)
			require.NoError(t, err)
			offsets, outcome, nodes := exact.Search(t.Context(), &in.Problem, capacity, 2e6, 0)
			require.Equal(t, exact.Solved, outcome)
			height, err := placement.Check(&in.Problem, offsets)
			require.NoError(t, err)
			require.LessOrEqual(t, height, int64(capacity))
			t.Logf("%d nodes", nodes)
		})
	}
}

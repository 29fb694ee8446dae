package cachingsim_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/cachingsim"
	"github.com/weir-ml/weir/memory/snapshot"
	"github.com/weir-ml/weir/tests/rewind"
)

var seed = flag.Uint64("seed", 1, "of the random requests")

var configs = []cachingsim.Config{
	{}, {Expandable: true}, {MaxSplit: 30 << 20}, {Capacity: 900 << 20}, {Capacity: 900 << 20, Expandable: true}, {Capacity: 900 << 20, MaxSplit: 25 << 20},
}

// TestRandom makes requests of all sizes and checks every block after each. At the end it
// rewinds the history to the beginning, and starts a second allocator with the contents of the
// first one: both return the same addresses from then on.
func TestRandom(t *testing.T) {
	for _, config := range configs {
		t.Run(fmt.Sprintf("%+v", config), func(t *testing.T) {
			t.Logf("seed %d", *seed)
			config.History = true
			r := rand.New(rand.NewPCG(*seed, 1))
			a := cachingsim.New(config)
			var live, retired []int64
			for range 1500 {
				play(t, r, a, &live, &retired)
				require.NoError(t, a.Check())
			}
			s := a.Snapshot()
			before, err := rewind.Segments(s, 0)
			require.NoError(t, err)
			require.Empty(t, before, "before the first request there is no segment")

			if config.Expandable || config.Capacity > 0 {
				return // a snapshot does not contain the size of a reserved range
			}
			// the second allocator gets its segments at the same addresses
			var places []int64
			b := cachingsim.New(cachingsim.Config{MaxSplit: config.MaxSplit, Place: func(int64) int64 { return places[0] }})
			require.NoError(t, b.Restore(s.Segments))
			require.NoError(t, b.Check())
			require.Equal(t, a.Stats().Reserved.Current, b.Stats().Reserved.Current)
			for range 500 {
				size := 1 + r.Int64N(40<<20)
				at, err := a.Malloc(cachingsim.Request{Bytes: size})
				require.NoError(t, err)
				places = []int64{at}
				same, err := b.Malloc(cachingsim.Request{Bytes: size})
				require.NoError(t, err)
				require.Equal(t, at, same)
				if r.IntN(3) > 0 {
					require.NoError(t, a.Free(at))
					require.NoError(t, b.Free(at))
				}
			}
		})
	}
}

// play makes a random request.
func play(t *testing.T, r *rand.Rand, a *cachingsim.Allocator, live, retired *[]int64) {
	takeOne := func(from *[]int64) int64 {
		i := r.IntN(len(*from))
		address := (*from)[i]
		*from = slices.Delete(*from, i, i+1)
		return address
	}
	switch n := r.IntN(100); {
	case n < 55:
		sizes := []int64{4 << 10, 1 << 20, 8 << 20, 60 << 20}
		address, err := a.Malloc(cachingsim.Request{Bytes: 1 + r.Int64N(sizes[r.IntN(len(sizes))]), Stream: r.Int64N(2)})
		if err != nil {
			require.ErrorIs(t, err, cachingsim.ErrOutOfMemory)
			return
		}
		*live = append(*live, address)
	case n < 90 && len(*live) > 0:
		require.NoError(t, a.Free(takeOne(live)))
	case n < 95 && len(*live) > 0:
		address := takeOne(live)
		require.NoError(t, a.Retire(address))
		*retired = append(*retired, address)
	case n < 99 && len(*retired) > 0:
		require.NoError(t, a.Complete(takeOne(retired)))
	case n == 99:
		a.EmptyCache()
	}
}

func TestRestoreRefuses(t *testing.T) {
	segment := snapshot.Segment{Address: 4096, Size: 20 << 20, Blocks: []snapshot.Block{{Address: 4096, Size: 1 << 20, State: snapshot.Live}}}
	require.ErrorContains(t, cachingsim.New(cachingsim.Config{}).Restore([]snapshot.Segment{segment}), "do not tile")
	segment.Expandable = true
	require.ErrorContains(t, cachingsim.New(cachingsim.Config{}).Restore([]snapshot.Segment{segment}), "expandable")
	a := cachingsim.New(cachingsim.Config{})
	_, err := a.Malloc(cachingsim.Request{Bytes: 1})
	require.NoError(t, err)
	require.ErrorContains(t, a.Restore(nil), "only an empty allocator")
}

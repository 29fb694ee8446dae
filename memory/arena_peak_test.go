package memory_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
)

// atPeak returns the buffers that were live at the peak, in a fixed order.
func atPeak(a *memory.Arena) []memory.PeakBuffer { return ordered(slices.Collect(a.AtPeak())) }

func ordered(list []memory.PeakBuffer) []memory.PeakBuffer {
	slices.SortFunc(list, func(x, y memory.PeakBuffer) int {
		return cmp.Or(cmp.Compare(x.Place, y.Place), cmp.Compare(x.Class, y.Class), cmp.Compare(x.Bytes, y.Bytes))
	})
	return list
}

// AtPeak returns the buffers that were live at the first maximum, whatever happened before and
// since.
func TestAtPeak(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, 0))
	a := open(t, 1<<20, 0)
	type buffer struct {
		memory.PeakBuffer
		handle memory.Handle
	}
	var live []buffer
	var most int64
	var want []memory.PeakBuffer
	look := func() {
		if a.Live() > most {
			most, want = a.Live(), nil
			for _, b := range live {
				want = append(want, b.PeakBuffer)
			}
		}
	}
	for i := range 20_000 {
		switch n := len(live); {
		case i%501 == 0:
			a.WatchPeak(true)
			most, want = 0, nil
		case n == 0 || random.IntN(30) >= n:
			b := buffer{memory.PeakBuffer{Class: memory.Class(random.IntN(memory.NumClasses)), Bytes: 1 + random.Int64N(100), Place: i}, memory.Handle{}}
			a.SetPlace(i)
			b.handle = alloc(t, a, b.Class, b.Bytes)
			live = append(live, b)
		default:
			k := random.IntN(n)
			release(t, a, live[k].handle)
			live = slices.Delete(live, k, k+1)
		}
		look()
		if i%7 == 0 {
			require.Equal(t, ordered(slices.Clone(want)), atPeak(a), "seed %d, call %d", seed, i)
		}
	}
}

// Watching allocates nothing after the first period, and ends with SetLayout.
func TestWatchPeakAllocatesNothing(t *testing.T) {
	a := open(t, 1<<20, 0)
	period := func() {
		a.WatchPeak(true)
		var handles [20]memory.Handle
		for i := range handles {
			handles[i], _ = a.Alloc(memory.Saved, 100)
		}
		for _, h := range handles {
			_, _ = a.Release(h)
		}
	}
	require.Zero(t, testing.AllocsPerRun(10, period))
	require.Len(t, atPeak(a), 20)

	require.NoError(t, a.SetLayout(&memory.Layout{Places: []int32{0}}))
	require.NoError(t, a.SetLayout(nil))
	release(t, a, alloc(t, a, memory.Saved, 5000))
	require.Len(t, atPeak(a), 20)
	a.WatchPeak(false)
	require.Empty(t, atPeak(a))
}

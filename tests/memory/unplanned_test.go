package memory_test

import (
	"iter"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// had holds the memory of a class at a peak, with its microbatches.
type had struct {
	bytes       int64
	buffers     int
	first, last int
}

// byClass sums owners by class. The microbatch of an entry is not compared.
func byClass(owners iter.Seq[memory.PeakOwner]) map[memory.Class]had {
	all := map[memory.Class]had{}
	for o := range owners {
		h, known := all[o.Class]
		if !known {
			h.first, h.last = o.First, o.Last
		}
		h.bytes, h.buffers = h.bytes+o.Bytes, h.buffers+o.Buffers
		h.first, h.last = min(h.first, o.First), max(h.last, o.Last)
		if o.Class == memory.Entry {
			h.first, h.last = -1, -1
		}
		all[o.Class] = h
	}
	return all
}

// ofRank returns the owners at the planned peak of a rank.
func ofRank(plan *layout.Memory, rank int) iter.Seq[memory.PeakOwner] {
	return func(yield func(memory.PeakOwner) bool) {
		for o := range plan.Owners(0) {
			if o.Rank == rank && !yield(o) {
				return
			}
		}
	}
}

// For a step without a memory plan, the owners at the peak are reported at its end. They are exactly the
// owners in a plan of the step. As long as steps are equal, they are reported only once.
func TestOwnersWithoutAPlan(t *testing.T) {
	const m = 9
	for _, found := range schedule.Schedules() {
		s := setup{schedule: found.Name, ranks: 2, stages: 2 * found.PerRank, model: tiny, capacity: 1}
		t.Run(s.String(), func(t *testing.T) {
			plan := prepare(t, newRig(t, s, false).group(t, profileOf(t, s, 5)), m, nil)
			r := newRig(t, s, false)
			reports, calls := make([][]memory.PeakOwner, s.ranks), make([]int, s.ranks)
			r.cfg.Hooks.Peak = func(rank int, owners iter.Seq[memory.PeakOwner]) {
				reports[rank] = slices.Collect(owners)
				calls[rank]++
			}
			group := r.group(t, nil)
			for step, length := range []int{5, 5, 4, 6} {
				result := runStep(t, group, m, r.sources(fixed(length)))
				require.Equal(t, slices.Repeat([]int{1 + step/3}, s.ranks), calls)
				for rank, owners := range reports {
					if length == 5 {
						require.Equal(t, byClass(ofRank(plan, rank)), byClass(slices.Values(owners)), "rank %d", rank)
					}
					if length < 5 {
						continue
					}
					bytes := resident(r.devs[rank])
					for _, o := range owners {
						require.Equal(t, step/3*3, int(o.Step))
						require.Equal(t, rank, o.Rank)
						require.NotEqual(t, memory.Resident, o.Class)
						require.Equal(t, o.Class == memory.Entry, o.Name == "entry parts", o.Name)
						bytes += o.Bytes
					}
					require.Equal(t, result.Ranks[rank].Peak, bytes)
				}
			}
			require.NoError(t, group.Close())
			for _, host := range r.hosts {
				require.Equal(t, resident(host), atPeak(host), "nothing is watched any more")
			}
		})
	}
}

// atPeak returns the bytes that were live at the peak according to a space.
func atPeak(space memory.PeakWatched) (bytes int64) {
	for b := range space.AtPeak() {
		bytes += b.Bytes
	}
	return bytes
}

// Watching allocates nothing after the first step.
func TestWatchingAllocatesNothing(t *testing.T) {
	if testkit.Raced {
		t.Skip("the race detector changes the counts of allocations")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	s := setup{schedule: "depth-first", ranks: 1, stages: 2, model: tiny, capacity: 1}
	var allocs [2]float64
	for watched := range allocs {
		r := newRig(t, s, false)
		if watched == 1 {
			r.cfg.Hooks.Peak = func(int, iter.Seq[memory.PeakOwner]) {}
		}
		group, sources := r.group(t, nil), r.sources(fixed(5))
		allocs[watched] = testing.AllocsPerRun(20, func() {
			runStep(t, group, 16, sources)
		})
	}
	require.Equal(t, allocs[0], allocs[1])
}

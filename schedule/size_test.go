package schedule_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/schedule"
)

// The size of a plan depends on its rule, not on the number of microbatches: building a plan
// for 64 ranks and a million microbatches takes less than a MiB.
func TestPlansAreSmall(t *testing.T) {
	const ranks = 64
	for _, test := range []struct {
		name              string
		depth             int
		segments, actions int // of all ranks
	}{
		{"gpipe", 1, 2 * ranks, 2 * ranks},
		{"1f1b", 1, 3*ranks - 2, 4*ranks - 2},
		{"1f1b", 2, 3*ranks - 2, 8*ranks - 4},
		{"interleaved", 2, 725, 6_554},
		{"breadth-first", 2, 4 * ranks, 4 * ranks},
		{"depth-first", 1, 3*ranks - 2, 4*ranks - 2},
		{"zb-h1", 1, 316, 568},
		{"zb1p", 2, 830, 7_392},
		{"zb-v", 2, 570, 1_461},
		{"seq1f1b", 1, 3*ranks - 2, 4*ranks - 2},
	} {
		s, err := schedule.Find(test.name)
		require.NoError(t, err)
		placement, err := s.Place(ranks, ranks*test.depth)
		require.NoError(t, err)
		build := func(microbatches int) (plan *schedule.Plan, bytes uint64) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			plan, err = s.Rule(schedule.Params{Placement: placement, Microbatches: microbatches})
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			return plan, after.TotalAlloc - before.TotalAlloc
		}
		size := func(plan *schedule.Plan) (segments, actions int) {
			for _, program := range plan.Programs {
				for _, s := range program {
					segments += max(len(s.Inner), 1)
				}
				for range schedule.StaticActions(program) {
					actions++
				}
			}
			return segments, actions
		}
		plan, bytes := build(1_000_000)
		require.Less(t, bytes, uint64(1<<20), test.name)
		segments, actions := size(plan)
		require.Equal(t, test.segments, segments, test.name)
		require.Equal(t, test.actions, actions, test.name)
	}
}

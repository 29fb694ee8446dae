package memory_test

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
)

// TestUnevenLengths runs microbatches of uneven lengths. If the source announces their shapes, the
// peak is the planned one to the byte. Otherwise the plan is for any length, and its peak is an
// upper bound.
func TestUnevenLengths(t *testing.T) {
	lengths := []int{3, 5, 8, 2}
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, name := range []string{"1f1b", "depth-first", "zb-v", "gpipe", "dualpipe"} {
		found, err := schedule.Find(name)
		require.NoError(t, err)
		classes := []int{0, 2, 1, 2, 3, 0, 0, 1, 2, 3, 3, 1}
		s := setup{schedule: name, ranks: 2, stages: 2 * found.PerRank, model: tiny, capacity: 1}
		profile := profileOf(t, s, lengths...)
		length := func(m int) int { return lengths[classes[m]] }
		r := newRig(t, s, false)
		group := r.group(t, profile)
		model := []int64{r.devs[0].Live(), r.devs[1].Live()}

		envelope, err := group.Step(t.Context(), len(classes), r.sources(length))
		require.NoError(t, err)
		require.True(t, envelope.Planned)
		for _, rank := range envelope.Ranks {
			require.LessOrEqual(t, rank.Peak, rank.PeakPlanned)
		}

		// announced is a source of microbatches of the lengths that also announces their classes.
		announced := func(length func(int) int) runner.Source[T] {
			return runner.IndexedShapes(func(ctx context.Context, entry batchctx.Entry[T]) error {
				return (&source{dev: r.devs[entry.Rank()], length: length}).Next(ctx, entry)
			}, func(m int) int { return classes[m] })
		}
		sources := announced(length)
		batches := 3
		if *testkit.Long {
			batches = 100
		}
		for batch := range batches {
			exact, err := group.Step(t.Context(), len(classes), sources)
			require.NoError(t, err)
			require.True(t, exact.Planned)
			if batch == 0 {
				require.Equal(t, envelope.Losses[0].Sum, exact.Losses[0].Sum)
			}
			plan := prepare(t, group, len(classes), sources)
			for i, rank := range exact.Ranks {
				require.Equal(t, rank.PeakPlanned, rank.Peak, "%s rank %d", name, i)
				require.Equal(t, plan.Ranks[i].Bound, rank.Peak-model[i])
				require.LessOrEqual(t, rank.PeakPlanned, envelope.Ranks[i].PeakPlanned)
			}
			for m := range classes { // of the next batch
				classes[m] = random.IntN(len(lengths))
			}
		}

		classes[0] = 0 // of 3 tokens
		_, err = group.Step(t.Context(), len(classes), announced(fixed(5)))
		require.ErrorIs(t, err, memory.ErrUnplanned)
		_, err = group.Step(t.Context(), len(classes), sources)
		require.NoError(t, err, "the next step")
	}
}

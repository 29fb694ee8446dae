package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
)

// announced is a source that announces the shape class of every microbatch in advance.
type announced struct {
	source
	shapes []int // by microbatch
}

func (s *announced) Shape(microbatch int) int { return s.shapes[microbatch] }

// TestUnevenLengths runs microbatches of uneven lengths. If the source announces their shapes, the
// peak is the planned one to the byte. Otherwise the plan is for any length, and its peak is an
// upper bound.
func TestUnevenLengths(t *testing.T) {
	lengths := []int{3, 5, 8, 2}
	classes := []int{0, 2, 1, 2, 3, 0, 0, 1, 2, 3, 3, 1}
	for _, name := range []string{"1f1b", "depth-first", "zb-v", "gpipe", "dualpipe"} {
		found, err := schedule.Find(name)
		require.NoError(t, err)
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

		var list []runner.Source[T]
		for _, dev := range r.devs {
			list = append(list, &announced{source{dev: dev, length: length}, classes})
		}
		sources := runner.PerRank(list...)
		for range 2 {
			exact, err := group.Step(t.Context(), len(classes), sources)
			require.NoError(t, err)
			require.True(t, exact.Planned)
			require.Equal(t, envelope.Losses[0].Sum, exact.Losses[0].Sum)
			plan := prepare(t, group, len(classes), sources)
			for i, rank := range exact.Ranks {
				require.Equal(t, rank.PeakPlanned, rank.Peak, "%s rank %d", name, i)
				require.Equal(t, plan.Ranks[i].Bound, rank.Peak-model[i])
				require.LessOrEqual(t, rank.PeakPlanned, envelope.Ranks[i].PeakPlanned)
			}
		}

		lying := runner.PerRank[T](
			&announced{source{dev: r.devs[0], length: fixed(5)}, classes}, &announced{source{dev: r.devs[1], length: fixed(5)}, classes},
		)
		_, err = group.Step(t.Context(), len(classes), lying)
		require.ErrorIs(t, err, memory.ErrUnplanned)
		_, err = group.Step(t.Context(), len(classes), sources)
		require.NoError(t, err, "the next step")
	}
}

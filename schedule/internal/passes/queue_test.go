package passes_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q passes.Queue
		var want []schedule.Action
		mb, step := 1000, 1
		for range rapid.IntRange(0, 60).Draw(t, "operations") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				step = -step
			case 1:
				mb = rapid.IntRange(0, 5000).Draw(t, "microbatch")
			case 2, 3, 4:
				if len(want) > 0 {
					require.Equal(t, want[0], q.Pop())
					want = want[1:]
				}
			default:
				a := schedule.Act(schedule.SendF, rapid.IntRange(0, 1).Draw(t, "stage"), mb)
				q.Push(a)
				want = append(want, a)
				mb = max(0, mb+step)
			}
			require.Equal(t, len(want), q.N)
		}
		for _, a := range want {
			require.Equal(t, a, q.Pop())
		}
		require.Zero(t, q.N)
	})
}

// A million ascending or descending messages of a stage take the space of two.
func TestQueueIsShort(t *testing.T) {
	var q passes.Queue
	for mb := range 1_000_000 {
		q.Push(schedule.Act(schedule.SendF, 3, mb))
	}
	for mb := range 1_000_000 {
		q.Push(schedule.Act(schedule.SendF, 3, 1_000_000-mb))
	}
	require.Equal(t, 2, len(q.List()))
	for range 999_999 {
		q.Pop()
	}
	require.Equal(t, 2, len(q.List()))
	require.Equal(t, 1_000_001, q.N)
}

package passes_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-ml/weir/internal/testing/plantest"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/internal/passes"
)

// TestQueue compares a Queue with lists, one for each section.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q passes.Queue
		var want [passes.Due + 1][]schedule.Action
		mb, step := 1000, 1
		for range rapid.IntRange(0, 100).Draw(t, "operations") {
			switch what := rapid.IntRange(0, 11).Draw(t, "what"); what {
			case 0:
				step = -step
			case 1:
				mb = rapid.IntRange(0, 5000).Draw(t, "microbatch")
			case 2, 3:
				from := passes.Arrived
				if len(want[from]) == 0 {
					from = passes.Fresh
				}
				if len(want[from]) > 0 {
					require.Equal(t, want[from][0], q.Take())
					want[passes.Taken], want[from] = append(want[passes.Taken], want[from][0]), want[from][1:]
				}
			case 4, 5, 6:
				from := []passes.Section{passes.Fresh, passes.Taken, passes.Finished}[what-4]
				q.Pass(from)
				want[from+1], want[from] = append(want[from+1], want[from]...), nil
			case 7:
				if list := &want[passes.Due]; len(*list) > 0 {
					require.Equal(t, (*list)[0], q.First())
					require.Equal(t, (*list)[0], q.Pop(passes.Due))
					*list = (*list)[1:]
				}
			default:
				a := schedule.NewAction(schedule.SendF, rapid.IntRange(0, 1).Draw(t, "stage"), mb)
				q.Push(a)
				want[passes.Fresh] = append(want[passes.Fresh], a)
				mb = max(0, mb+step)
			}
		}
		var got [passes.Due + 1][]schedule.Action
		last := passes.Due
		for section, part := range q.Ranges() {
			require.LessOrEqual(t, section, last)
			last = section
			for i := range part.N {
				got[section] = append(got[section], part.Head.Shift(i*part.Step))
			}
		}
		for section, list := range want {
			require.Equal(t, len(list), int(q.N[section]))
			require.True(t, slices.Equal(list, got[section]))
		}
	})
}

// A million ascending or descending messages of a stage take the space of two.
func TestQueueIsShort(t *testing.T) {
	var q passes.Queue
	ranges := func() (n int) {
		for range q.Ranges() {
			n++
		}
		return n
	}
	for mb := range 1_000_000 {
		q.Push(schedule.NewAction(schedule.SendF, 3, mb))
	}
	for mb := range 1_000_000 {
		q.Push(schedule.NewAction(schedule.SendF, 3, 1_000_000-mb))
	}
	require.Equal(t, 2, ranges())
	for range 999_999 {
		q.Pop(passes.Fresh)
	}
	require.Equal(t, 2, ranges())
	require.EqualValues(t, 1_000_001, q.N[passes.Fresh])
}

// TestCursor advances through programs with nested loops, sometimes by several repeats in one step, and compares the
// actions with the list.
func TestCursor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		p, _ := plantest.DrawPipelined(t)
		p = plantest.Nested(p, rng)
		list := slices.Collect(p.All(0))
		at := passes.NewCursor(p.Programs[0], 0)
		for int(at.Position) < len(list) {
			a, ok := at.Action()
			require.True(t, ok)
			require.Equal(t, list[at.Position], a)
			if s := &at.Program[at.Segment]; rng.IntN(8) == 0 {
				began := at
				at.Skip(rng.IntN(s.Repeat - at.Repeat))
				require.True(t, at.SamePlace(&began))
				require.Zero(t, (at.Position-began.Position)%s.Len())
				continue
			}
			at.Advance()
		}
		_, ok := at.Action()
		require.False(t, ok)
	})
}

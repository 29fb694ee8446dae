package fault_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/runner"
)

// TestEveryEvent makes a step fail at each of its events: before every action, at the start and
// the end of every call of a stage, at every allocation, in the source, in the hooks, each in
// every possible way. After each failure every buffer is released, and the next step gives the
// numbers of a run without a fault.
func TestEveryEvent(t *testing.T) {
	testkit.Slow(t)
	for _, d := range designs {
		for _, mode := range []schedule.Mode{schedule.Training, schedule.ForwardOnly} {
			name := d.name + "/training"
			if mode == schedule.ForwardOnly {
				name = d.name + "/evaluation"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { everyEvent(t, d, mode) })
			})
		}
	}
}

func everyEvent(t *testing.T, d design, mode schedule.Mode) {
	const m = 3
	broken, intact := newRig(t, d), newRig(t, d)
	require.Equal(t, intact.clean(mode, m), broken.clean(mode, m))
	log, actions := slices.Clone(intact.events.log), intact.events.actions()
	seen := map[place]int{}
	for target, at := range log {
		for f := range numFaults {
			if f == returns && !at.place.fails() {
				continue
			}
			before := broken.pool.book()
			e := broken.events.provoke(target, f, func(ctx context.Context) (*runner.Result, error) { return broken.step(ctx, mode, m) })
			if f == cancels && (at.place == atEnd || at.action == actions[len(actions)-1]) {
				require.NoError(t, e.err, "a cancellation has no effect after the last action has begun")
				require.Equal(t, intact.clean(mode, m), broken.readAndUpdate(mode, e.result))
			} else {
				broken.events.require(t, e, actions)
			}
			requireReleased(t, before, broken.pool.book())
			require.Equal(t, intact.clean(mode, m), broken.clean(mode, m), "after %v at event %d, %v", f, target, at)
			require.Equal(t, log, broken.events.log, "all steps have the same events")
			requireReleased(t, before, broken.pool.book())
			seen[at.place]++
		}
	}
	for p := range numPlaces {
		if p != atOutputs && p != atEnd || p == atOutputs == (mode == schedule.ForwardOnly) { // an evaluation has no gradients at its end
			require.Positive(t, seen[p], "no fault was planted at: %s", placeNames[p])
		}
	}
	require.NoError(t, broken.runner.Close())
	_, err := broken.step(context.Background(), mode, m)
	require.ErrorIs(t, err, runner.ErrClosed)
}

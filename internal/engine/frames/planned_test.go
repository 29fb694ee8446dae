package frames_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/engine/frames"
	"github.com/weir-ml/weir/memory"
)

// The live bytes must equal those of the memory plan. If the plan is for several shapes, they must not exceed
// it (L6).
func TestAuditPlan(t *testing.T) {
	r := newRig(t)
	require.EqualValues(t, 128, r.Baseline())
	r.pull(0)
	r.open(0, 0)
	_ = r.End(nil)
	require.NoError(t, r.AuditPlan(200, false))
	require.NoError(t, r.AuditPlan(201, true))
	for _, planned := range []int64{199, 201} {
		err := r.AuditPlan(planned, false)
		var leak *frames.LeakError
		require.ErrorAs(t, err, &leak)
		require.ErrorIs(t, err, frames.ErrLeak)
		require.Equal(t, 200-planned, leak.Bytes)
		require.Equal(t, memory.Entry, leak.Class)
		require.Equal(t, "bottom", leak.Name)
		require.ErrorContains(t, err, "rank 3 stage 0 (bottom) microbatch 0 F")
	}
	require.ErrorIs(t, r.AuditPlan(199, true), frames.ErrLeak)
}

// KnownLeak names the action after which the books differed, even before the microbatch's audit.
func TestLost(t *testing.T) {
	r := newRig(t)
	r.pull(0)
	r.open(0, 0)
	require.NoError(t, r.KnownLeak())
	r.alloc(memory.Workspace, 40)
	var leak *frames.LeakError
	require.ErrorAs(t, r.KnownLeak(), &leak)
	require.Equal(t, memory.Workspace, leak.Class)
	require.EqualValues(t, 40, leak.Bytes)
	require.Equal(t, "bottom", leak.Name)
}

// In a dry run, a size that depends on values is replaced by its upper bound. Otherwise it is the given size.
func TestAtMost(t *testing.T) {
	r := newRig(t)
	bounds := 0
	fill := func() error {
		for _, part := range []string{"tokens", "labels"} {
			require.NoError(t, r.Put(part, r.alloc(memory.Entry, int64(r.AtMost(10, 100)))))
		}
		return nil
	}
	require.NoError(t, r.pullWith(0, fill))
	require.EqualValues(t, 20, r.live())
	mb := r.open(0, 0)
	require.Equal(t, 3, mb.AtMost(3, 5))
	part, there := r.EntryPart(0, 1)
	require.True(t, there)
	require.EqualValues(t, 10, r.arena.Bytes(part))

	r.Dry(func() { bounds++ })
	require.Equal(t, 5, mb.AtMost(3, 5))
	require.NoError(t, r.pullWith(1, fill))
	require.EqualValues(t, 220, r.live())
	require.Equal(t, 3, bounds)
	r.Dry(nil)
	mb = r.Call(0, 0, frames.InForward)
	require.Equal(t, 3, mb.AtMost(3, 5))
	_, there = r.EntryPart(1, 2)
	require.False(t, there)
}

package layout_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/lower"
)

// offloadable holds the figures of a stage with two slots, of which the plan offloads both, or the larger one.
var offloadable = []layout.Figures{{Stage: "block", Output: 64, Gradient: 64, Input: 4096, Weight: 1024, Carry: 128, Forward: 512, Backward: 256}}

// offloaded returns a plan of a schedule with the slots that a share selects.
func offloaded(t testing.TB, name string, ranks, m int, share float64) (*schedule.Plan, *layout.Profile) {
	t.Helper()
	s, err := schedule.Find(name)
	require.NoError(t, err)
	params := schedule.Params{Microbatches: m}
	params.Placement, err = s.Place(ranks, ranks*s.PerRank)
	require.NoError(t, err)
	plan, err := s.Rule(params)
	require.NoError(t, err)
	profile := layout.FromFigures(plan, offloadable)
	plan, err = lower.Prepare(plan, lower.Passes{StageInfo: profile.StageInfo, Capacity: 1, OffloadSlots: profile.OffloadSlots(&plan.Placement, share)})
	require.NoError(t, err)
	return plan, profile
}

// farPeak replays only the far memory of a rank, and returns its peak.
func farPeak(plan *schedule.Plan, rank int) (peak int64) {
	live := int64(0)
	for a := range plan.All(rank) {
		var bytes int64
		for slot, size := range []int64{4096, 1024} {
			if plan.OffloadSlots != nil && plan.OffloadSlots[a.Stage()]>>slot&1 == 1 {
				bytes += size
			}
		}
		if a.Kind() == schedule.Offload {
			live += bytes
		}
		peak = max(peak, live)
		if a.Drop()&schedule.DropFar != 0 {
			live -= bytes
		}
	}
	return peak
}

// TestOffload lays out both memories of every schedule at several shares. The near layouts are compared with the whole
// program, and the sum of their peaks does not grow with the share. The far layouts have the peaks that farPeak computes.
func TestOffload(t *testing.T) {
	moved := 0
	for _, s := range schedule.Schedules() {
		for _, ranks := range []int{1, 4} {
			var last int64
			for _, share := range []float64{0, 0.5, 0.9, 1} {
				name := fmt.Sprintf("%s P=%d share %v", s.Name, ranks, share)
				plan, profile := offloaded(t, s.Name, ranks, 24, share)
				made := laid(t, plan, profile, layout.Config{Search: quick})
				bound := int64(0)
				for rank := range made.Ranks {
					requireLayout(t, made, rank, name)
					r := &made.Ranks[rank]
					bound += r.Bound
					peak := farPeak(plan, rank)
					require.Equal(t, peak > 0, r.Far != nil, name)
					if r.Far != nil {
						moved++
						require.Equal(t, peak, r.Far.Bound, "%s rank %d", name, rank)
						require.Equal(t, peak, r.Far.Height, "%s rank %d", name, rank)
						require.NoError(t, r.Far.Layout.Validate())
					}
				}
				require.True(t, share == 0 || bound <= last, "%s: %d bytes, and with a smaller share %d", name, bound, last)
				last = bound
			}
		}
	}
	require.Greater(t, moved, 60)
}

// TestOffloadIsFlat plans both memories of a million microbatches. The peaks are those of a few
// microbatches, and the far layouts are as low as possible.
func TestOffloadIsFlat(t *testing.T) {
	for _, name := range []string{"1f1b", "interleaved", "zb-v"} {
		few, profile := offloaded(t, name, 4, 64, 1)
		many, _ := offloaded(t, name, 4, 1<<20, 1)
		a, b := laid(t, few, profile, layout.Config{Search: quick}), laid(t, many, profile, layout.Config{Search: quick})
		for rank := range a.Ranks {
			require.Equal(t, a.Ranks[rank].Bound, b.Ranks[rank].Bound, "%s rank %d", name, rank)
			require.Equal(t, a.Ranks[rank].Far == nil, b.Ranks[rank].Far == nil)
			if a.Ranks[rank].Far != nil {
				require.Equal(t, a.Ranks[rank].Far.Bound, b.Ranks[rank].Far.Bound, "%s rank %d", name, rank)
				require.Equal(t, b.Ranks[rank].Far.Bound, b.Ranks[rank].Far.Height)
				require.Less(t, len(b.Ranks[rank].Far.Layout.Allocations), 1000)
			}
		}
	}
}

// TestAway checks that OffloadSlots returns the largest slots that fit into the share of saved bytes, and only
// slots that hold the sole reference to their buffer.
func TestAway(t *testing.T) {
	placement := schedule.Placement{Ranks: 2, Rank: []int{0, 0, 1}}
	buffers := []layout.Buffer{
		{Bytes: 100, Class: memory.Saved}, {Bytes: 60, Class: memory.Saved}, {Bytes: 40, Class: memory.Activation},
		{Bytes: 1000, Class: memory.Resident},
	}
	alloc := func(refs ...layout.Ref) (events []layout.RefChange) {
		for _, ref := range refs {
			events = append(events, layout.RefChange{Op: layout.Alloc, Ref: ref})
		}
		return events
	}
	stage := func(out layout.Ref, events []layout.RefChange, slots ...layout.Ref) layout.StageProfile {
		return layout.StageProfile{Stage: "s", Buffers: buffers, Slots: slots,
			Forward: &layout.Call{Events: events, Out: []layout.Ref{out}}}
	}
	retainInput := layout.RefChange{Op: layout.Retain, Ref: in(0)}
	output := alloc(own(0), own(1), own(2))
	keepsOutput := append(slices.Clone(output), layout.RefChange{Op: layout.Retain, Ref: own(2)})
	away := func(share float64, stages ...layout.StageProfile) []uint64 {
		p := &layout.Profile{Shapes: []layout.ShapeProfile{{Stages: stages}}}
		return p.OffloadSlots(&placement, share)
	}
	plain := stage(own(2), output, own(0), own(1), layout.Ref{})
	for share, want := range map[float64]uint64{0: 0, 0.3: 0, 0.38: 0b10, 0.62: 0b10, 0.63: 0b01, 0.99: 0b01, 1: 0b11} {
		require.Equal(t, []uint64{want, want, want}, away(share, plain, plain, plain), "share %v", share)
	}
	require.Equal(t, []uint64{0b11, 0b11, 0b11}, away(1,
		stage(own(2), keepsOutput, own(0), own(1), own(2), own(3)), // others also hold the output and a table
		stage(own(2), keepsOutput, own(0), own(1), own(2)),
		stage(own(2), keepsOutput, own(0), own(1), own(2))))
	takesInput := append(slices.Clone(output), retainInput)
	require.Equal(t, []uint64{0b11, 0b111, 0b111}, away(1, plain,
		stage(own(2), takesInput, own(0), own(1), in(0)),
		stage(own(2), takesInput, own(0), own(1), in(0))), "an input that was received, or handed over")
	require.Equal(t, []uint64{0b11, 0b11, 0b11}, away(1,
		stage(own(2), keepsOutput, own(0), own(1), own(2)),
		stage(in(0), append(slices.Clone(takesInput), retainInput), own(0), own(1), in(0)), // the stage hands its input on
		stage(own(2), append(slices.Clone(takesInput), retainInput), own(0), own(1), in(0), in(0))), "held twice")
}

// TestNearSlots: slots after the first 64, which a share has room for, are reported.
func TestNearSlots(t *testing.T) {
	placement := schedule.Looped(1, 1)
	st := layout.StageProfile{Stage: "deep", Forward: &layout.Call{Out: []layout.Ref{own(0)}}}
	st.Buffers = append(st.Buffers, layout.Buffer{Bytes: 1, Class: memory.Activation})
	st.Forward.Events = append(st.Forward.Events, layout.RefChange{Op: layout.Alloc, Ref: own(0)})
	for i := range 70 {
		st.Buffers = append(st.Buffers, layout.Buffer{Bytes: 10 + int64(i)/64*90, Class: memory.Saved})
		st.Slots = append(st.Slots, own(i+1))
		st.Forward.Events = append(st.Forward.Events, layout.RefChange{Op: layout.Alloc, Ref: own(i + 1)})
	}
	p := &layout.Profile{Shapes: []layout.ShapeProfile{{Stages: []layout.StageProfile{st}}}}
	require.Equal(t, []uint64{math.MaxUint64}, p.OffloadSlots(&placement, 1))
	require.Equal(t, []layout.NearSlots{{Name: "deep", Slots: 6, Bytes: 600}}, p.NearSlots(&placement, 1))
	require.Equal(t, []uint64{0b11111}, p.OffloadSlots(&placement, 0.041), "50 of 1240 bytes: the larger slots do not fit")
	require.Empty(t, p.NearSlots(&placement, 0.041))
	require.Equal(t, "stage 0 (deep) keeps 6 slots near, 600 bytes for each microbatch: only the first 64 slots of a stage can be offloaded; divide the model into more stages",
		p.NearSlots(&placement, 1)[0].String())
}

// TestSharedSlotIsRefused: a plan that offloads, by hand, a buffer that others hold too is refused
// with its name.
func TestSharedSlotIsRefused(t *testing.T) {
	plan, profile := offloaded(t, "1f1b", 4, 16, 1)
	st := &profile.Shapes[0].Stages[0]
	ref := st.Slots[0]
	st.Forward.Events = append(st.Forward.Events, layout.RefChange{Op: layout.Retain, Ref: ref})
	st.Whole.Events = append(st.Whole.Events, layout.RefChange{Op: layout.Release, Ref: ref})
	st.Whole.Taken++
	st.Input.Events = append(st.Input.Events, layout.RefChange{Op: layout.Release, Ref: ref})
	st.Input.Taken++
	_, err := layout.Make(t.Context(), plan, profile, layout.Config{})
	require.ErrorIs(t, err, layout.ErrProfile)
	require.ErrorContains(t, err, "stage 0 (block): saved for I is offloaded, but has 2 references")

	plan, profile = offloaded(t, "1f1b", 4, 16, 1)
	profile.Shapes[0].Stages[0].Slots[1] = layout.Ref{}
	_, err = layout.Make(t.Context(), plan, profile, layout.Config{})
	require.ErrorIs(t, err, layout.ErrProfile)
	require.ErrorContains(t, err, "saves nothing of its own in slot 1, which the plan offloads")
}

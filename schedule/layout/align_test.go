package layout_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory/placement"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/schedule/layout"
)

// TestPaddingIsNoGap lays out buffers that are not whole cache lines. If padding would make the layout too high, the
// buffers are adjacent.
func TestPaddingIsNoGap(t *testing.T) {
	plan := planned(t, "1f1b", 2, 64, schedule.Training)
	made := laid(t, plan, model(2, 1, 50, 33), layout.Config{Search: placement.Options{Nodes: 20_000}})
	for rank, r := range made.Ranks {
		requireLayout(t, made, rank, "odd sizes")
		require.LessOrEqual(t, r.Gap(), 1.0/1024, "rank %d: %s", rank, r.Method)
	}
}

// TestProofWithPadding: sizes that are not multiples of the least alignment need padding in
// every layout, and the proof says so.
func TestProofWithPadding(t *testing.T) {
	plan := planned(t, "1f1b", 1, 3, schedule.Training)
	profile := model(1, 1, 16, 4)
	for i := range profile.Shapes[0].Stages[0].Buffers {
		profile.Shapes[0].Stages[0].Buffers[i].Bytes += int64(1 + i%3)
	}
	made := laid(t, plan, profile, layout.Config{Search: placement.Options{Nodes: 100_000}})
	r := &made.Ranks[0]
	require.Greater(t, r.Height, r.Bound)
	require.True(t, r.Optimal, "%d above %d by %s", r.Height, r.Bound, r.Method)
	require.Contains(t, r.Proof, "multiple of 4 bytes")
}

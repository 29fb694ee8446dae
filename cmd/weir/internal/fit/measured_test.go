package fit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/cmd/weir/internal/fit"
	"github.com/weir-ml/weir/memory/cachingsim"
	"github.com/weir-ml/weir/memory/snapshot"
)

// TestFromSnapshots writes the snapshot that PyTorch's allocator would record of one microbatch on
// one rank and makes a profile of it. It expects the peak of the tables for one microbatch, and no
// lower peak for several.
func TestFromSnapshots(t *testing.T) {
	m := fit.Model{Layers: 4, Hidden: 64, Heads: 4, KVHeads: 4, HeadDim: 16, FFN: 256, Vocabulary: 100, LayerNorm: true}
	layers, sizes := fit.Composed(&m, fit.Setup{Sequence: 64, Microbatch: 2}, []int{4})
	composed, err := fit.Compose(layers, 16, 16, sizes)
	require.NoError(t, err)

	a := cachingsim.New(cachingsim.Config{History: true})
	_, err = a.Malloc(cachingsim.Request{Bytes: 12345}) // weights
	require.NoError(t, err)
	live := map[int]int64{}
	for change := range laid(t, planOf(t, "gpipe", 1, 1, 1), composed, 0).All(0) {
		if !change.Alloc {
			require.NoError(t, a.Free(live[change.Serial]))
			continue
		}
		live[change.Serial], err = a.Malloc(cachingsim.Request{Bytes: change.Bytes, Frames: []snapshot.Frame{{Name: "forward", Filename: "model.py", Line: 3}}})
		require.NoError(t, err)
	}
	profile, resident, err := fit.FromSnapshots([]*snapshot.Snapshot{a.Snapshot()}, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{12345}, resident)
	require.Equal(t, "forward, model.py:3", profile.Shapes[0].Stages[0].Buffers[0].Name)
	const logits = 2 * 128 * 100
	for n := range int64(4) { // with gpipe, each of n further microbatches keeps as many bytes as are live at the peak of one
		plan := planOf(t, "gpipe", 1, 1, int(n)+1)
		want := laid(t, plan, composed, 0).Ranks[0].Peak.Bytes
		require.Equal(t, want+n*logits, laid(t, plan, profile, 0).Ranks[0].Peak.Bytes, "logits that F frees are taken to be kept")
	}

	_, _, err = fit.FromSnapshots([]*snapshot.Snapshot{{}}, 2)
	require.ErrorIs(t, err, fit.ErrSnapshot)
	require.ErrorContains(t, err, "_record_memory_history")
	_, _, err = fit.FromSnapshots(make([]*snapshot.Snapshot, 2), 3)
	require.ErrorContains(t, err, "there are 2 snapshots for 3 stages")
}

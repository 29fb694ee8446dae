package caching_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory/cachingsim"
)

// TestSmallTablesPinSegments is the case of NeMo-RL 2003: in the third step a cache is filled with 32 small
// tables at intervals. When all other buffers are freed and the allocator's cache is emptied, the
// tables pin their segments. With a layout, long-lived buffers are in a separate region, and all memory of
// the step can be returned: 0 bytes remain, as tests/memory shows.
func TestSmallTablesPinSegments(t *testing.T) {
	m := model{layers: 8, hidden: 4096, ffn: 14336, heads: 32, words: 32000, precision: fp8}
	tokens := int64(8192)
	if !*testkit.Long {
		m.layers, m.hidden, m.ffn, tokens = 4, 1024, 3584, 4096
	}
	const tables, table = 32, 1600 << 10
	profile := m.profile(4, tokens)
	step := events(laidOut(t, planned(t, training{schedule: "1f1b", ranks: 4}, profile, 16), profile, nil))
	var filling []cachingsim.AllocEvent
	for i, e := range step {
		filling = append(filling, e)
		if every := len(step) / (tables + 1); i%every == every-1 && i/every < tables {
			filling = append(filling, cachingsim.AllocEvent{ID: -1 - i, Bytes: table})
		}
	}
	for _, expandable := range []bool{false, true} {
		a := cachingsim.New(cachingsim.Config{Expandable: expandable})
		for _, events := range [][]cachingsim.AllocEvent{step, step, filling} {
			_, err := a.Replay(events)
			require.NoError(t, err)
		}
		a.EmptyCache()
		s := a.Stats()
		require.EqualValues(t, tables*table, s.Requested.Current)
		t.Logf("expandable %v: %.1f MiB allocated, %.3f GiB reserved, of a peak of %.3f GiB", expandable,
			float64(s.Allocated.Current)/(1<<20), float64(s.Reserved.Current)/(1<<30), float64(s.Reserved.Peak)/(1<<30))
		if !expandable {
			require.Greater(t, s.Reserved.Current, 5*s.Allocated.Current, "small tables keep large segments")
		}
	}
}

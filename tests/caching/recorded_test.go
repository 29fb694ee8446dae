package caching_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/internal/testing/modeltest"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/memory/cachingsim"
	"github.com/weir-ml/weir/stages/transformer"
)

// TestRecorded makes the comparison for real allocations of this library's stages, a dry run of a
// transformer in float32.
func TestRecorded(t *testing.T) {
	model, tokens := transformer.Config{Vocabulary: 4000, Width: 256, Layers: 4, Heads: 4, Context: 512, Seed: 1}, 512
	if *testkit.Long {
		model, tokens = transformer.Config{Vocabulary: 32000, Width: 4096, Layers: 32, Heads: 32, Context: 2048, Seed: 1}, 2048
		t.Log("| schedule | sizes | recompute | lengths | allocations | live | Weir | native | expandable |")
	}
	for _, model.Recompute = range []bool{false, true} {
		for _, r := range []training{{schedule: "depth-first", ranks: 1}, {schedule: "1f1b", ranks: 4}} {
			r.precision, r.recompute = float32s, model.Recompute
			profile := modeltest.Record(t, model, r.ranks, tokens)
			made := laidOut(t, planned(t, r, profile, 16), profile, nil)
			step := events(made)
			reserved := map[bool]int64{}
			for _, expandable := range []bool{false, true} {
				a := cachingsim.New(cachingsim.Config{Expandable: expandable})
				for range 3 {
					live, err := a.Replay(step)
					require.NoError(t, err)
					require.Empty(t, live)
				}
				reserved[expandable] = a.Stats().Reserved.Peak
			}
			b := taken{live: made.Ranks[0].Bound, weir: made.Ranks[0].Height, native: reserved[false], expandable: reserved[true]}
			t.Logf("| %v | %d | %v |", r, len(step)/2, b)
			require.LessOrEqual(t, b.weir, min(b.native, b.expandable), "%v", r)
		}
	}
}

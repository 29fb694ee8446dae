package caching_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	batchctx "github.com/weir-ml/weir/context"
	"github.com/weir-ml/weir/internal/testing/testkit"
	"github.com/weir-ml/weir/kernels"
	"github.com/weir-ml/weir/loss"
	"github.com/weir-ml/weir/memory/cachingsim"
	"github.com/weir-ml/weir/schedule/layout"
	"github.com/weir-ml/weir/schedule/runner"
	"github.com/weir-ml/weir/schedule/runner/record"
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
			profile := recorded(t, model, r.ranks, tokens)
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

// recorded returns the profile of a model with a number of stages, recorded on one rank: it is
// valid for any placement.
func recorded(t *testing.T, cfg transformer.Config, stageCount, tokens int) *layout.Profile {
	t.Helper()
	host, err := kernels.NewHost(kernels.HostConfig{Capacity: 1 << 38})
	require.NoError(t, err)
	defer func() { require.NoError(t, host.Close()) }()
	dev := kernels.NewNull(host)
	defer func() { require.NoError(t, dev.Close()) }()
	model, err := transformer.New(dev, cfg, stageCount)
	require.NoError(t, err)
	stages := model.Stages()
	profile, err := record.Stages(t.Context(), runner.Config[kernels.Buffer]{
		Stages: stages, Spaces: runner.Spaces(dev),
		Losses: []loss.Def{{Name: transformer.LossName, Reduction: loss.Mean, Objective: true}},
	}, record.Shape[kernels.Buffer]{Name: "tokens", Source: &source{dev, tokens}})
	require.NoError(t, err)
	return profile
}

// source provides entries with a fixed number of tokens.
type source struct {
	dev    kernels.Device
	tokens int
}

func (s *source) Next(_ context.Context, entry batchctx.Entry[kernels.Buffer]) error {
	ids := make([]int32, s.tokens)
	transformer.Put(s.dev, entry, ids, ids, make([]float32, s.tokens))
	return nil
}

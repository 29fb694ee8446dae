package transformer_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-ml/weir/memory"
	"github.com/weir-ml/weir/schedule"
	"github.com/weir-ml/weir/stages/stagetest"
	"github.com/weir-ml/weir/stages/transformer"
)

// TestKeepLogits: no bit depends on the number of kept logits, whether the backward is one call
// or two, and a microbatch keeps as many as the bound allows: whole tiles, or all.
func TestKeepLogits(t *testing.T) {
	const tokens, tile = 5, 1040 // of the host, in words
	cfg := transformer.Config{Vocabulary: 2*tile + 20, Width: 8, Layers: 1, Heads: 2, Context: tokens, Seed: 1}
	all := int64(4 * tokens * cfg.Vocabulary)
	batch := sequences(random(t), cfg, 3)
	want := train(t, cfg, 1, 2, nil, batch)
	for _, test := range []struct{ bound, kept int64 }{
		{transformer.NoLogits, 0}, {0, 0}, {4*tokens*tile - 1, 0}, {4 * tokens * tile, 4 * tokens * tile}, {all - 1, 4 * tokens * 2 * tile}, {all, all}, {1 << 40, all}, {transformer.AllLogits, all},
	} {
		cfg.KeepLogits = test.bound
		for name, plan := range map[string]schedule.Rule{"B": nil, "I and W": stagetest.SplitRule(schedule.DepthFirst, 2)} {
			t.Run(fmt.Sprint(test.bound, " ", name), func(t *testing.T) { require.Equal(t, want, train(t, cfg, 3, 2, plan, batch)) })
		}
		saved := liveBefore(t, schedule.B, nil, cfg, 3, tokens, nil)[memory.Saved]
		require.Equal(t, test.kept+int64(4*tokens*(9*cfg.Width+cfg.Heads+1)), saved)
	}
	cfg.KeepLogits = transformer.NoLogits - 1
	require.ErrorContains(t, cfg.Validate(), "KeepLogits is -2")
}

// TestKeepLogitsErrors makes every call of a step that keeps logits fail: nothing is lost.
func TestKeepLogitsErrors(t *testing.T) {
	cfg := tiny
	cfg.Layers, cfg.KeepLogits = 1, 1<<20
	for _, plan := range []schedule.Rule{nil, stagetest.SplitRule(schedule.DepthFirst, 1)} {
		require.Greater(t, failEveryCall(t, cfg, 3, plan), 40)
	}
}
